package service_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// waitChild is a child: SOCKET ID GPUS waits with its own process, prints what it is told, and holds what it gets until
// a line comes. GPUS of 0 waits for an offer of two.
func waitChild(args []string) error {
	client, n := service.Client{Path: args[0]}, 0
	_, _ = fmt.Sscan(args[2], &n)
	request := service.WaitRequest{ID: args[1], GPUs: 2}
	if n > 0 {
		request.Change = &change.Change{Enter: &change.Enter{PID: snapshot.PID(os.Getpid()), Attach: true, Config: snapshot.EnvConfig{GPUs: &n}}}
	}
	result, err := client.Wait(context.Background(), request, func(p *service.QueuePlace) {
		switch {
		case p == nil:
			fmt.Println("away")
		case p.Offered != nil:
			fmt.Println("offered", p.Offered)
		default:
			fmt.Println(p.Number, "of", p.People, "after", p.Own, p.Freed, p.Barred)
		}
	})
	if err != nil {
		fmt.Println("error:", err)
		return nil
	}
	fmt.Println("now", result.Now)
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}

// waiter is a command of a user that waits.
type waiter struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

func (h *host) waiter(t *testing.T, uid int, id string, gpus int) *waiter {
	t.Helper()
	cmd := child(t, uid, "wait", h.socket, id, fmt.Sprint(gpus))
	in, out := proctest.StartPiped(t, cmd)
	w := &waiter{t, cmd, in, make(chan string, 1000)}
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			w.lines <- lines.Text()
		}
		close(w.lines)
	}()
	t.Cleanup(w.end)
	return w
}

// says waits until it is told a text.
func (w *waiter) says(want string) {
	w.t.Helper()
	var heard []string
	for deadline := time.After(30 * time.Second); ; {
		select {
		case line, open := <-w.lines:
			heard = append(heard, line)
			if strings.HasPrefix(line, want) {
				return
			}
			require.True(w.t, open, "%q was never said: %q", want, heard)
		case <-deadline:
			require.Fail(w.t, "not said", "%q was never said: %q", want, heard)
		}
	}
}

func (w *waiter) end() { _ = w.cmd.Process.Kill(); _ = w.cmd.Wait() }

// waits are who waits as it is noted; nil if that is unknown.
func (h *host) waits() (ids []string) {
	list := service.Waits(filepath.Dir(h.socket), func(pid snapshot.PID, start snapshot.StartTime) bool {
		alive, _ := proc.FS{}.Alive(pid, start)
		return alive
	})
	if list != nil {
		ids = []string{}
	}
	for _, w := range list {
		ids = append(ids, fmt.Sprint(w.ID, " ", w.UID, " ", w.GPUs))
	}
	return ids
}

func TestWaitsTakeTurns(t *testing.T) {
	h := rootHost(t, 2)
	_, stop := h.serve(t, service.Bounds{})
	first := h.waiter(t, alice, "a1", 2)
	first.says("now [0 1]")
	second := h.waiter(t, alice, "a2", 1)
	second.says("1 of 1 after 0")
	third := h.waiter(t, alice, "a3", 1)
	third.says("1 of 1 after 1")
	other := h.waiter(t, mallory, "m1", 1)
	other.says("1 of 2 after 0")
	second.says("2 of 2 after 0")
	require.Eventually(t, func() bool { return len(h.waits()) == 3 }, 10*time.Second, 10*time.Millisecond)
	require.Contains(t, h.ask(t, mallory, `{"enter":{"eid":"m","pid":PID,"attach":true,"config":{"gpus":1}}}`)[0], "error: ")

	stop() // its place is kept, in whatever order they come back
	second.says("away")
	_, stop = h.serve(t, service.Bounds{})
	third.says("2 of 2 after 1")
	third.end()
	require.Eventually(t, func() bool {
		return fmt.Sprint(h.waits()) == "[a2 4001 1 m1 4002 1]" || fmt.Sprint(h.waits()) == "[m1 4002 1 a2 4001 1]"
	}, 10*time.Second, 10*time.Millisecond, "%v", h.waits())
	first.end()
	second.says("now [0]")
	other.says("now [1]")
	require.Eventually(t, func() bool { return h.waits() != nil && len(h.waits()) == 0 }, 10*time.Second, 10*time.Millisecond)
	stop()
}

func TestAnOfferIsKeptForItsUser(t *testing.T) {
	h := serving(t, 3)
	offered := h.waiter(t, alice, "a1", 0)
	offered.says("offered [0 1]")
	enter := `{"enter":{"eid":"x","pid":PID,"attach":true,"config":{"gpus":2}}}`
	require.Contains(t, h.ask(t, mallory, enter)[0], "GPUs 0,1 are kept for people who wait")
	offered.end()
	time.Sleep(time.Second)
	require.Contains(t, h.ask(t, mallory, enter)[0], "GPUs 0,1 are kept for people who wait", "also when the command has ended")
	require.Equal(t, []string{"now [0 1]"}, h.ask(t, alice, enter))
}

func TestAControllerFreesGPUsForAWait(t *testing.T) {
	h := serving(t, 2)
	holder := h.waiter(t, mallory, "m1", 2)
	holder.says("now")
	second, third := h.waiter(t, mallory, "m2", 1), (*waiter)(nil)
	second.says("1 of 1")
	third = h.waiter(t, mallory, "m3", 1)
	third.says("1 of 1")
	first := h.waiter(t, alice, "a1", 1)
	first.says("1 of 2")
	require.NoError(t, h.client().Allow(t.Context(), service.Allowance{
		ForMS: 60_000, Offers: map[string][]snapshot.DeviceIndex{"m3": {1}}, Caps: []service.Cap{{Name: "lab", Counts: "gpus", GPUs: []snapshot.DeviceIndex{0, 1}}},
		People: map[snapshot.UID]service.Person{alice: {Caps: []service.CapUse{{}}}},
	}))
	third.says("2 of 2 after 1 [1]")
	first.says("1 of 2 after 0 [] cap lab allows no more than 0 GPUs")
	holder.end()
	second.says("now [0]")
	third.says("now [1]")
	require.Eventually(t, func() bool { return fmt.Sprint(h.waits()) == "[a1 4001 1]" }, 10*time.Second, 10*time.Millisecond, "although it comes first")
}

// TestNoWaits: then the host isn't looked at, whatever is changed and told.
func TestNoWaits(t *testing.T) {
	h := rootHost(t, 2)
	h.looks = func() { t.Error("the host is looked at") }
	_, stop := h.serve(t, service.Bounds{})
	require.Eventually(t, func() bool { return h.waits() != nil }, 10*time.Second, 10*time.Millisecond)
	require.NoError(t, h.client().Allow(t.Context(), service.Allowance{ForMS: 60_000}))
	h.ask(t, mallory, `{"enter":{"eid":"m","pid":PID,"attach":true,"config":{"gpus":1}}}`)
	time.Sleep(300 * time.Millisecond)
	stop()
}

// TestASlowTurn: while GPUs are attached for a wait, no other command waits for that, or gets these.
func TestASlowTurn(t *testing.T) {
	h := rootHost(t, 2)
	begun, goOn := make(chan struct{}), make(chan struct{})
	h.begins = func(c change.Change) {
		if c.Enter != nil && c.Enter.EID != "m" {
			close(begun)
			<-goOn
		}
	}
	h.serve(t, service.Bounds{})
	first := h.waiter(t, alice, "a1", 1)
	<-begun
	require.NoError(t, h.client().Allow(t.Context(), service.Allowance{}))
	enter := `{"enter":{"eid":"m","pid":PID,"attach":true,"config":{"gpus":%d}}}`
	require.Contains(t, h.ask(t, mallory, fmt.Sprintf(enter, 2))[0], "GPU 0 is kept for people who wait")
	require.Equal(t, []string{"now [1]"}, h.ask(t, mallory, fmt.Sprintf(enter, 1)))
	close(goOn)
	first.says("now [0]")
}

// TestWaitsThatBegin: until they are in the queue, they count like other requests; afterwards no more.
func TestWaitsThatBegin(t *testing.T) {
	h := rootHost(t, 2)
	goOn := make(chan struct{})
	h.looks = func() { <-goOn }
	h.serve(t, service.Bounds{PerUser: 2})
	connections := func() int {
		status := proctest.Try(h.client().Status(t.Context())).OK(t)
		return status.Connections - 1 // this one
	}
	for i := range 3 {
		h.waiter(t, mallory, fmt.Sprint("m", i), 2)
	}
	require.Eventually(t, func() bool { return connections() == 2 }, 10*time.Second, 10*time.Millisecond)
	require.Contains(t, h.ask(t, mallory, `{"enter":{"eid":"x","pid":PID}}`)[0], "too many requests from uid 4002")
	close(goOn)
	require.Eventually(t, func() bool { return connections() == 0 && len(h.waits()) == 2 }, 10*time.Second, 10*time.Millisecond)
}

// TestTooManyWaits: waits of one user are bounded, and none of them takes a connection from others.
func TestTooManyWaits(t *testing.T) {
	h := rootHost(t, 1)
	h.serve(t, service.Bounds{Burst: 1000, PerUser: 48})
	h.waiter(t, alice, "a", 1).says("now [0]")
	for i := range 65 {
		cmd := child(t, mallory, "sit", h.socket, "1", fmt.Sprintf(`{"version":1,"wait":{"id":"m%d","gpus":1}}`+"\n", i))
		proctest.Start(t, cmd)
	}
	require.Eventually(t, func() bool { return len(h.waits()) == 64 }, 30*time.Second, 20*time.Millisecond)
	h.waiter(t, mallory, "more", 1).says("error: not a valid request: 64 commands of uid 4002 wait already, and no more may")
	require.Equal(t, 1, proctest.Try(h.client().Status(t.Context())).OK(t).Connections, "this one")
	h.waiter(t, 0, "m1", 1).says("error: not a valid request: another command waits with this id")
}

// TestAWaitForMoreThanThereIs holds nothing: it would hold it for ever.
func TestAWaitForMoreThanThereIs(t *testing.T) {
	h := serving(t, 1)
	h.waiter(t, mallory, "m1", 0).says("1 of 1") // for two
	h.waiter(t, alice, "a1", 1).says("now [0]")
}

// TestAWaitEndsWithItsConnection, whatever the client sent before: else it would stand in the queue for ever.
func TestAWaitEndsWithItsConnection(t *testing.T) {
	h := serving(t, 2)
	h.waiter(t, alice, "a1", 1).says("now [0]")
	conn := proctest.Try(net.Dial("unix", h.socket)).OK(t)
	defer conn.Close()
	proctest.Try(fmt.Fprintln(conn, `{"version":1,"wait":{"id":"b","gpus":2}}`)).OK(t)
	proctest.Try(bufio.NewReader(conn).ReadString('\n')).OK(t)
	proctest.Try(fmt.Fprintln(conn, "more")).OK(t)
	time.Sleep(100 * time.Millisecond) // so that it is read first
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return len(h.waits()) == 0 }, 10*time.Second, 10*time.Millisecond)
}

// TestAWaitThatACapRefuses: whatever the cap counts, those behind it pass.
func TestAWaitThatACapRefuses(t *testing.T) {
	h := serving(t, 1)
	limit := func(amount snapshot.Memory) {
		h.allow(t, service.Allowance{
			Caps:   []service.Cap{{Counts: "memory", GPUs: []snapshot.DeviceIndex{0}}},
			People: map[snapshot.UID]service.Person{alice: {Caps: []service.CapUse{{Limit: amount.Bytes()}}}, mallory: {}},
		})
	}
	limit(snapshot.MustMemory("40g"))
	first := h.waiter(t, alice, "a1", 1)
	first.says("1 of 1 after 0 [] a cap of the policy allows no more now")
	second := h.waiter(t, mallory, "m1", 1)
	second.says("now [0]")
	limit(snapshot.MustMemory("80g"))
	second.end()
	first.says("now [0]")
}

// TestAWaitForWhatIsConfigured is for what was configured when it began: else its turn would come and fail, for ever.
func TestAWaitForWhatIsConfigured(t *testing.T) {
	h := serving(t, 2)
	holder := h.waiter(t, 0, "r1", 2)
	holder.says("now [0 1]")
	member := child(t, mallory, "sit", h.socket, "1", `{"version":1,"wait":{"id":"m1","change":{"attach":{"eid":"m"}}}}`+"\n")
	as := func(c change.Change) {
		proctest.Try(h.client().Change(t.Context(), c)).OK(t)
	}
	one, more := 1, 5
	sleeper := child(t, mallory, "sit", h.socket, "0", "")
	proctest.Start(t, sleeper)
	as(change.Change{Enter: &change.Enter{EID: "m", PID: snapshot.PID(sleeper.Process.Pid), Config: snapshot.EnvConfig{GPUs: &one}}})
	proctest.Start(t, member)
	require.Eventually(t, func() bool { return fmt.Sprint(h.waits()) == "[m1 4002 1]" }, 10*time.Second, 10*time.Millisecond)
	as(change.Change{Configure: &change.Configure{EID: "m", Set: snapshot.EnvConfig{GPUs: &more}}})
	second := h.waiter(t, alice, "a1", 1)
	second.says("2 of 2")
	holder.end()
	second.says("now [1]")
	require.Eventually(t, func() bool { return len(h.waits()) == 0 }, 10*time.Second, 10*time.Millisecond)
}
