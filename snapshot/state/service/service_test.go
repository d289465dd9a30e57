package service_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

const alice, mallory = 4001, 4002

func TestPeopleChangeRootsStateOverTheSocket(t *testing.T) {
	h := serving(t, 4)
	require.Equal(t, []string{"now []", "now [0 1]", "now [1]"}, h.ask(t, alice,
		`{"enter":{"eid":"a","pid":PID}}`, `{"attach":{"eid":"a","count":2}}`, `{"detach":{"eid":"a","indices":[0]}}`))
	require.Empty(t, h.files(t).Environments, "its process has ended")

	sleeper := proctest.Sleeper(t, alice)
	enter := fmt.Sprintf(`{"enter":{"eid":"a","pid":%d,"attach":true,"config":{"gpus":1}}}`, sleeper)
	require.Equal(t, []string{"now [0]"}, h.ask(t, alice, enter))
	files := h.files(t)
	require.Len(t, files.Environments, 1)
	require.EqualValues(t, alice, files.Environments[0].UID)
	require.EqualValues(t, "somebody", files.Environments[0].Username)

	for _, refused := range []string{
		enter, `{"attach":{"eid":"a","count":2}}`, `{"detach":{"eid":"a"}}`, `{"configure":{"eid":"a","set":{"name":"x"}}}`,
		fmt.Sprintf(`{"leave":{"pid":%d}}`, sleeper),
		`{"enter":{"eid":"b","pid":1}}`, `{"enter":{"eid":"a","pid":PID}}`,
	} {
		answer := h.ask(t, mallory, refused)
		require.Regexp(t, "^error: .*(not your environment|belongs to|only that user)", answer[0], refused)
	}
	require.Equal(t, files, h.files(t), "nothing has changed")
	require.Equal(t, []string{"now []"}, h.ask(t, 0, `{"detach":{"eid":"a"}}`), "root may")
}

// What needed a state file that users may write can't be tried: each row is a way to tamper with one by
// such a file, as an ordinary user with the real files and the real socket.
func TestWhatAUserCannotForge(t *testing.T) {
	h := serving(t, 4)
	hers := proctest.Sleeper(t, alice)
	require.Equal(t, []string{"now [0]"}, h.ask(t, alice, fmt.Sprintf(`{"enter":{"eid":"alices","pid":%d,"attach":true,"config":{"gpus":1}}}`, hers)))
	before := h.files(t)

	sh := func(script string) string {
		cmd := exec.Command("sh", "-c", script)
		cmd.Env = append(os.Environ(), "S="+h.dir, "R="+h.root, "RUN="+filepath.Dir(h.socket))
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: mallory, Gid: mallory}}
		output, err := cmd.CombinedOutput()
		require.Error(t, err, script+": "+string(output))
		return string(output)
	}
	forged := `[{"eid": "f", "uid": 0, "username": "root", "creation": "20/11/2026 10:00:00", "config": {"name": null, "gpu_memory": null, "gpus": null}, "pids": [1], "kernel_ids": []}]`
	for name, row := range map[string]struct{ script, request string }{
		"an environment of an exempt owner":      {`echo '` + forged + `' >$S/envs.json || echo '` + forged + `' >$R/host/envs.json`, `{"enter":{"eid":"f","pid":1}}`},
		"an environment of alice":                {`sed -i s/4001/4001/ $S/envs.json || mv $S/envs.json $S/x`, fmt.Sprintf(`{"enter":{"eid":"f","pid":%d}}`, hers)},
		"attachments of alice":                   {`trap "rm -f /tmp/genv-forged.$$" EXIT; cp $S/devices.json /tmp/genv-forged.$$ && mv /tmp/genv-forged.$$ $S/devices.json`, `{"attach":{"eid":"alices","count":4}}`},
		"attachments of nobody":                  {`ln -sf /dev/null $R/host/devices.json || ln -f /etc/hostname $S/devices.json`, `{"attach":{"eid":"nobody","count":1,"unregistered":false}}`},
		"an uid without an account":              {`touch $R/host/new || touch $S/new`, `{"enter":{"eid":"f","pid":99999999}}`},
		"envs.json is removed":                   {`rm -f $S/envs.json || rm -rf $S || mv $S $S.old || rm -f $R/host/envs.json`, `{"leave":{"pid":` + fmt.Sprint(hers) + `}}`},
		"state is truncated":                     {`: >$R/host/envs.json || : >$S/envs.json || truncate -s 0 $R/host/seen.json`, `{"detach":{"eid":"alices"}}`},
		"the owner's note is removed":            {`rm -f $R/host/owner.json || mv $R/host $R/h || mkdir $R/x`, `{"configure":{"eid":"alices","set":{"name":"run this"}}}`},
		"a socket of one's own":                  {`rm -f $RUN/host.sock || mv $RUN/host.sock $RUN/x || touch $RUN/host.lock`, `{"attach":{"eid":"alices","count":3}}`},
		"the lock is held":                       {`flock -n $R/host/genv.lock true`, `{"enter":{"eid":"alices","kernel_id":"k"}}`},
		"words of persuasion in an environment":  {`chmod 0777 $S/envs.json || chmod 0777 $S`, `{"enter":{"eid":"run \u001b[31m rm -rf","pid":PID}}`},
		"start times are forged":                 {`echo '{}' >$R/host/seen.json || echo '{}' >$S/seen.json`, `{"leave":{"kernel_id":"k","pid":7}}`},
		"a process keeps alice's alive":          {`sed -i 's/"pids": \[/&1, /' $S/envs.json || cp $S/envs.json $R/host/envs.json`, `{"enter":{"eid":"alices","pid":PID}}`},
		"a capacity of alice's":                  {`sed -i 's/"gpu_memory": null/"gpu_memory": "1b"/' $S/devices.json || sed -i s/null/1/ $R/host/devices.json`, `{"attach":{"eid":"alices","indices":[0],"gpu_memory":"1b","over_subscribe":true}}`},
		"alice's capacity in her environment":    {`ex -sc 'w!' $R/host/envs.json || tee -a $R/host/envs.json </dev/null`, `{"configure":{"eid":"alices","set":{"gpu_memory":"1b"},"clear":["gpus"]}}`},
		"dates are forged":                       {`sed -i s/2026/2001/ $S/devices.json || touch -d 2001-01-01 $R/host/devices.json $S/devices.json`, `{"attach":{"eid":"alices","indices":[1]}}`},
		"the folder is replaced":                 {`mkdir $S.new && mv $S $S.old && mv $S.new $S || mv -T $S.new $S || mv $R/host $R/x`, `{"detach":{"eid":"alices","indices":[0]}}`},
		"huge files":                             {`head -c 1000000 /dev/zero >$S/envs.json || fallocate -l 1G $R/host/envs.json || fallocate -l 1G $S/devices.json`, `{"enter":{"eid":"` + strings.Repeat("x", 5000) + `","pid":PID}}`},
		"files of an older version":              {`echo '{"envs":{}}' >$S/envs.json || echo '{"devices":{}}' >$R/host/devices.json`, `{"attach":{"eid":"gone","count":1}}`},
		"a note of alice's is removed or forged": {`mkdir -p $R/host/mig && touch $R/host/mig/4001.json || rm -r $R/host/mig`, `{"detach":{"eid":"alices","indices":[0]}}`},
	} {
		sh("( " + row.script + " ) 2>&1")
		require.Contains(t, h.ask(t, mallory, row.request)[0], "error: ", name)
		require.Equal(t, before, h.files(t), name)
	}
}

// What users may still do in the state folder delays no change, and an id that they can see is not taken from its user.
func TestWhatAUserMayHoldOrTakeHarmsNoOther(t *testing.T) {
	h := serving(t, 4)
	holder := exec.Command("flock", filepath.Join(h.dir, "genv.lock"), "flock", filepath.Join(h.dir, "devices", "0.lock"), "sh", "-c", "echo; exec sleep 1000", "kernel-6a1b.json")
	holder.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true, Credential: &syscall.Credential{Uid: mallory, Gid: mallory}}
	out := proctest.Try(holder.StdoutPipe()).OK(t)
	require.NoError(t, holder.Start())
	t.Cleanup(func() { _ = syscall.Kill(-holder.Process.Pid, syscall.SIGKILL); _ = holder.Wait() })
	proctest.Try(out.Read(make([]byte, 1))).OK(t, "the copy's lock and a device's are held, by what looks like a kernel")
	kernel := `{"enter":{"eid":"%s","kernel_id":"6a1b","attach":true,"config":{"gpus":1}}}`
	require.Equal(t, []string{"now [0]"}, h.ask(t, mallory, fmt.Sprintf(kernel, "taken")))
	require.Equal(t, []string{
		"now [1]",
		`error: not your environment: "taken" belongs to uid 4002; only that user and root may change it`,
	}, h.ask(t, alice, fmt.Sprintf(kernel, "hers"), fmt.Sprintf(kernel, "taken")))
}

// An environment with another user's process, or from a container, is never registered.
func TestAClientInAnotherPIDNamespace(t *testing.T) {
	h := serving(t, 1)
	cmd := child(t, alice, "ask", h.socket, `{"enter":{"eid":"c","pid":PID}}`, `{"leave":{"pid":1}}`, `{"enter":{"eid":"c","kernel_id":"k"}}`)
	cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	output := proctest.Output(t, cmd)
	lines := strings.Split(strings.TrimSpace(output), "\n")
	require.Contains(t, lines[0], "another PID namespace")
	require.Contains(t, lines[1], "another PID namespace")
	require.Equal(t, "now []", lines[2], "what names no PID is allowed")

	root := child(t, 0, "ask", h.socket, `{"enter":{"eid":"c","kernel_id":"k"}}`, `{"attach":{"eid":"c","count":1}}`, `{"leave":{"pid":1}}`)
	root.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
	output = proctest.Output(t, root)
	require.Equal(t, 3, strings.Count(output, "in a container, of which the uid proves no user"), "uid 0 of a container is not root: %s", output)
	require.Empty(t, h.files(t).Environments)
}

// A process that ends while it is registered is not registered, whatever gets its PID.
func TestAProcessThatEndsMeanwhile(t *testing.T) {
	h := newHost(t, 1)
	h.serve(t, service.Bounds{})
	sleeper := exec.Command("sleep", "1000")
	require.NoError(t, sleeper.Start())
	h.before = func(c change.Change) {
		if c.Enter != nil {
			go func() { _ = sleeper.Process.Kill() }()
			_ = sleeper.Wait()
		}
	}
	_, err := h.client().Change(t.Context(), change.Change{Enter: &change.Enter{EID: "a", PID: snapshot.PID(sleeper.Process.Pid)}})
	require.ErrorContains(t, err, "has ended")
	require.Empty(t, h.files(t).Environments)
}

// raw sends bytes, and returns the answer; empty if the connection was just closed.
func (h *host) raw(t *testing.T, send func(io.Writer)) string {
	t.Helper()
	conn := proctest.Try(net.Dial("unix", h.socket)).OK(t)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	send(conn)
	line, _ := bufio.NewReader(conn).ReadString('\n')
	return line
}

func TestGarbageOnTheSocket(t *testing.T) {
	h := newHost(t, 1)
	server, _ := h.serve(t, service.Bounds{PerUser: 64, Burst: 1000, Send: 2 * time.Second})
	for name, tt := range map[string]struct {
		send func(io.Writer)
		want string
	}{
		"nothing":         {func(io.Writer) {}, "didn't come within"},
		"an empty line":   {func(w io.Writer) { fmt.Fprintln(w) }, "not a request of genv"},
		"binary":          {func(w io.Writer) { fmt.Fprintf(w, "\x00\xff\n") }, "not a request of genv"},
		"an HTTP request": {func(w io.Writer) { fmt.Fprintf(w, "GET / HTTP/1.1\r\n\r\n") }, "not a request of genv"},
		"another version": {func(w io.Writer) { fmt.Fprintln(w, `{"version":2,"status":true}`) }, "version 2 of the protocol"},
		"no question":     {func(w io.Writer) { fmt.Fprintln(w, `{"version":1}`) }, "asks for one thing"},
		"two questions":   {func(w io.Writer) { fmt.Fprintln(w, `{"version":1,"status":true,"look":"devices"}`) }, "asks for one thing"},
		"a field more":    {func(w io.Writer) { fmt.Fprintln(w, `{"version":1,"uid":0,"status":true}`) }, "not a request of genv"},
		"deep JSON":       {func(w io.Writer) { fmt.Fprintln(w, strings.Repeat("[", 100_000)) }, "not a request of genv"},
		"a wrong change":  {func(w io.Writer) { fmt.Fprintln(w, `{"version":1,"change":{"enter":{"pid":1},"leave":{"pid":1}}}`) }, "has one operation"},
		"no such look":    {func(w io.Writer) { fmt.Fprintln(w, `{"version":1,"look":"/etc/shadow"}`) }, "no document"},
		"half a request":  {func(w io.Writer) { fmt.Fprint(w, `{"version":1,`) }, "didn't come within"},
		"a slow writer": {func(w io.Writer) {
			for err := error(nil); err == nil; time.Sleep(20 * time.Millisecond) {
				_, err = fmt.Fprint(w, " ")
			}
		}, "didn't come within"},
		"a gigabyte": {func(w io.Writer) {
			chunk := make([]byte, 1<<20)
			for range 1 << 10 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, "longer than|didn't come within"}, // on a slow machine
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Regexp(t, tt.want, h.raw(t, tt.send))
		})
	}
	require.JSONEq(t, `[{"seen":"by root"}]`, string(proctest.Try(h.client().Look(t.Context(), "devices")).OK(t)))
	status := proctest.Try(h.client().Status(t.Context())).OK(t)
	require.Equal(t, os.Getpid(), status.PID)
	require.NotNil(t, server)
}

// What is asked for by a client that has ended, before its turn comes, is not done; what is begun is done as a whole.
func TestClientsThatEnd(t *testing.T) {
	h := newHost(t, 1)
	entered, goOn := make(chan string, 2), make(chan struct{})
	h.before = func(c change.Change) {
		entered <- string(c.Enter.EID)
		<-goOn
	}
	h.serve(t, service.Bounds{})
	begin := func(eid string) net.Conn {
		conn := proctest.Try(net.Dial("unix", h.socket)).OK(t)
		fmt.Fprintf(conn, `{"version":1,"change":{"enter":{"eid":%q,"kernel_id":"k-%s"}}}`+"\n", eid, eid)
		return conn
	}
	first := begin("first")
	require.Equal(t, "first", <-entered)
	second := begin("second")
	time.Sleep(50 * time.Millisecond) // it waits for its turn then
	require.NoError(t, second.Close())
	time.Sleep(50 * time.Millisecond)
	require.NoError(t, first.Close(), "between the request and the answer")
	close(goOn)
	proctest.Try(h.client().Change(t.Context(), change.Change{Enter: &change.Enter{EID: "third", Kernel: "k-third"}})).OK(t)
	h.mu.Lock()
	defer h.mu.Unlock()
	var made []string
	for _, c := range h.made {
		made = append(made, string(c.Enter.EID))
	}
	require.Equal(t, []string{"first", "third"}, made)
}

// While a user asks as fast as possible, others are served as fast as ever.
func TestAFloodDoesNotDelayOthers(t *testing.T) {
	h := serving(t, 4)
	flood := child(t, mallory, "flood", h.socket, "1ms")
	proctest.Start(t, flood)
	require.Eventually(t, func() bool {
		status, err := h.client().Status(t.Context())
		return err == nil && status.Refused > 500
	}, 2*time.Minute, 10*time.Millisecond)
	slowest := time.Duration(0)
	for i := range 20 {
		begun := time.Now()
		c := change.Change{Enter: &change.Enter{EID: snapshot.EnvID(fmt.Sprint(i)), Kernel: fmt.Sprint(i)}}
		proctest.Try(h.client().Change(t.Context(), c)).OK(t)
		slowest = max(slowest, time.Since(begun))
	}
	t.Logf("the slowest of 20 changes took %v", slowest) // BenchmarkAttach measures it
	before := proctest.Try(h.client().Status(t.Context())).OK(t)
	require.Eventually(t, func() bool {
		status, err := h.client().Status(t.Context())
		return err == nil && status.Refused > before.Refused
	}, 20*time.Second, 10*time.Millisecond, "the flood went on all the time")
}

// Ten thousand connections of a user leave the service to others, also if they ask for much and never read it.
func TestConnectionsThatAreHeld(t *testing.T) {
	proctest.NeedRoot(t)
	var limit syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Max < 11_000 {
		t.Skipf("a process may open %d files here", limit.Max)
	}
	for request, n := range map[string]int{"": 10_000, `{"version":1,"look":"devices"}` + "\n": 200} {
		h := newHostIn(t, "/tmp", 1)
		h.large = true
		h.serve(t, service.Bounds{Send: time.Minute})
		h.sit(t, mallory, n, request)
		began := time.Now()
		require.Equal(t, []string{"now []"}, h.ask(t, alice, `{"enter":{"eid":"a","pid":PID}}`))
		status := proctest.Try(h.client().Status(t.Context())).OK(t)
		require.Less(t, time.Since(began), 30*time.Second, "not until they are given up")
		require.GreaterOrEqual(t, status.Refused, uint64(n*8/10))
		require.LessOrEqual(t, status.Connections, 18, "16, this one, and perhaps the one that was just answered")
	}
}

// The service ends after it has answered what has come.
func TestTheServiceEndsCleanly(t *testing.T) {
	h := newHost(t, 1)
	begun, goOn := make(chan struct{}), make(chan struct{})
	h.before = func(change.Change) { close(begun); <-goOn }
	_, stop := h.serve(t, service.Bounds{})
	done := make(chan error, 1)
	go func() {
		_, err := h.client().Change(context.Background(), change.Change{Enter: &change.Enter{EID: "a", Kernel: "k"}})
		done <- err
	}()
	<-begun
	time.AfterFunc(20*time.Millisecond, func() { close(goOn) })
	stop()
	require.NoError(t, <-done)
	_, err := h.client().Status(t.Context())
	require.True(t, errors.Is(err, service.ErrNotRunning), err)
}

func FuzzRequest(f *testing.F) {
	for _, seed := range []string{`{"version":1,"status":true}`, `{"version":1,"look":"devices"}`, `{"version":1,"change":{"leave":{"pid":7}}}`, ``, `{`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := service.DecodeRequest(data)
		if err != nil {
			require.ErrorIs(t, err, state.ErrRequest)
			return
		}
		encoded := proctest.Try(json.Marshal(r)).OK(t)
		require.Equal(t, r.Look, proctest.Try(service.DecodeRequest(encoded)).OK(t).Look)
	})
}
