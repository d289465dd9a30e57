package fleet_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/fleet"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// busyHost is a host of four GPUs without genv, on which a process uses those below busy.
type busyHost struct {
	model string
	modes [4]string // of each GPU, after its model
	busy  atomic.Int32
	looks atomic.Int32
	calls sync.Map // the commands that it was sent, without nvidia-smi's
}

func newBusyHost(model string, busy int32) *busyHost {
	h := &busyHost{model: model}
	h.busy.Store(busy)
	return h
}

func (h *busyHost) Handle(_ context.Context, r *inprocess.Request) int {
	switch {
	case strings.Contains(r.Line, "--query-gpu"):
		h.looks.Add(1)
		fmt.Fprint(r.Stdout, "\ngenv-data\n")
		for i := range 4 {
			fmt.Fprintf(r.Stdout, "%d, GPU-%d, 40960, 0, 0, 44, 70.12, %s%s\n", i, i, h.model, h.modes[i])
		}
		fmt.Fprint(r.Stdout, "\ngenv-data 0\n")
	case strings.Contains(r.Line, "--query-compute-apps"):
		fmt.Fprint(r.Stdout, "\ngenv-data\n")
		for i := range h.busy.Load() {
			fmt.Fprintf(r.Stdout, "GPU-%d, 88, 2000\n", i)
		}
		fmt.Fprint(r.Stdout, "\ngenv-data 0\n")
	case strings.Contains(r.Line, "/proc/"), strings.Contains(r.Line, "genv-diagnosis"): // it has a shell
	default:
		h.calls.Store(r.Line, true)
		fmt.Fprintln(r.Stderr, "sh: 1: genv: not found")
		return 127
	}
	return 0
}

// waitFleet is two hosts that are full, one that is down, and one with another model.
func waitFleet(t *testing.T) (f *inprocess.Fleet, a, b *busyHost) {
	a, b = newBusyHost("NVIDIA A100-SXM4-40GB", 4), newBusyHost("NVIDIA A100-SXM4-40GB", 4)
	f = genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: a}, &inprocess.Server{Name: "b", Handler: b},
		&inprocess.Server{Name: "down", Handler: a}, &inprocess.Server{Name: "t4", Handler: newBusyHost("Tesla T4", 0)})
	require.NoError(t, f.Host("down").Inject(inprocess.Faults{Down: true}))
	return f, a, b
}

// waiting is `genv remote wait` in this process.
type waiting struct {
	t        *testing.T
	stop     context.CancelFunc
	out, err testfleet.ProgramOutput
	ended    chan int
}

func (w *waiting) said() string { return w.err.String() }

func startWaiting(t *testing.T, f *inprocess.Fleet, args ...string) *waiting {
	w := &waiting{t: t, ended: make(chan int, 1)}
	ctx, stop := context.WithCancel(t.Context())
	w.stop = stop
	p := command.Program{In: strings.NewReader(""), Out: &w.out, Err: &w.err, Getenv: os.Getenv, Now: time.Now}
	args = append([]string{"genv", "remote", "wait", "-F", f.SSHConfig(), "--interval", "20ms"}, args...)
	go func() { w.ended <- command.Run(ctx, p, genvtest.Commands, args) }()
	t.Cleanup(func() { w.stop(); w.code() })
	return w
}

// code is the exit code, when it has ended.
func (w *waiting) code() int {
	code := <-w.ended
	w.ended <- code
	return code
}

func (w *waiting) waitFor(text string) {
	w.t.Helper()
	require.Eventually(w.t, func() bool { return strings.Contains(w.said(), text) }, time.Minute, 5*time.Millisecond, text)
}

// TestWait: it returns when one host has enough, and not before.
func TestWait(t *testing.T) {
	f, a, b := waitFleet(t)
	w := startWaiting(t, f, "-H", "a,b,down,t4", "--gpus", "2", "--model", "a100")
	w.waitFor("Waiting for 2 free GPUs of model a100 on one of 4 hosts, asked every 20ms. Ctrl-C ends it.\n")
	a.busy.Store(3)
	b.busy.Store(3) // one on each is not two on one
	for _, h := range []*busyHost{a, b} {
		looks := h.looks.Load()
		require.Eventually(t, func() bool { return h.looks.Load() > looks+2 }, time.Minute, 5*time.Millisecond)
	}
	require.Empty(t, w.ended)
	b.busy.Store(1)
	require.Zero(t, w.code())
	require.Equal(t, "b 1,2\n", w.out.String(), "as many as are wanted")
	require.Equal(t, 1, strings.Count(w.said(), "1 of 4 hosts failed:\n"), "once: %s", w.said())
	require.Equal(t, 1, strings.Count(w.said(), "    down: "))
	require.Equal(t, 1, f.Host("a").Counts().Logins, "the connection is kept")
	a.calls.Range(func(line, _ any) bool {
		if diagnosis := strings.HasSuffix(line.(string), " login"); !diagnosis { // of a login that may not use sudo
			require.NotContains(t, line, "sudo")
		}
		return true
	})
}

// TestWaitForWhatCUDACanUse: a prohibited GPU and one in MIG mode are not waited for. One with a screen is the last.
func TestWaitForWhatCUDACanUse(t *testing.T) {
	h := newBusyHost("NVIDIA A100-SXM4-40GB", 0)
	h.modes = [4]string{", 550.1, Disabled, Prohibited, Disabled, 400", ", 550.1, Disabled, Default, Enabled, 400", ", 550.1, Enabled, Default, Disabled, 400", ", 550.1, Disabled, Default, Disabled, 400"}
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: h})
	for count, want := range []string{"", "a 3\n", "a 3,2\n", ""} {
		if count == 0 {
			continue
		}
		w := startWaiting(t, f, "-H", "a", "--gpus", strconv.Itoa(count))
		require.Equal(t, want == "", w.code() != 0, w.said())
		require.Equal(t, want, w.out.String(), w.said())
	}
}

// TestWaitOnATerminal: it shows how far it is, and leaves nothing of that.
func TestWaitOnATerminal(t *testing.T) {
	f, a, _ := waitFleet(t)
	a.busy.Store(2)
	master, tty, err := pty.Open()
	require.NoError(t, err)
	defer master.Close()
	ended := make(chan int, 1)
	var out strings.Builder
	p := command.Program{In: strings.NewReader(""), Out: &out, Err: tty, Getenv: os.Getenv, Now: time.Now}
	go func() {
		ended <- command.Run(t.Context(), p, genvtest.Commands, []string{"genv", "remote", "wait", "-F", f.SSHConfig(), "--interval", "20ms", "-H", "a,b,t4", "--gpus", "3", "--model", "a100"})
		_ = tty.Close()
	}()
	var shown strings.Builder
	part := make([]byte, 1<<10)
	for n := 0; err == nil; n, err = master.Read(part) {
		shown.Write(part[:n])
		if strings.Contains(shown.String(), "\r\x1b[K2 of 8 GPUs free, at most 2 on one host …") {
			a.busy.Store(1)
		}
	}
	require.Zero(t, <-ended, shown.String())
	require.Equal(t, "a 1,2,3\n", out.String())
	require.True(t, strings.HasSuffix(shown.String(), "\r\x1b[K"), "%q", shown.String())
}

// TestWaitWithRoomAtOnce prints no more than where it is.
func TestWaitWithRoomAtOnce(t *testing.T) {
	f, a, b := waitFleet(t)
	a.busy.Store(1)
	b.busy.Store(0)
	for args, want := range map[string]string{
		"-H a,b":                              "b 0\n", // the host with the most
		"-H a,t4,b":                           "t4 0\n",
		"-H a,b,t4 --model T4 --gpus 4":       "t4 0,1,2,3\n",
		"-H a,b,t4 --gpus 3 --model a100*40g": "b 0,1,2\n",
		"-H a --memory 40g --gpus 3":          "a 1,2,3\n",
	} {
		w := startWaiting(t, f, strings.Fields(args)...)
		require.Zero(t, w.code(), args)
		require.Equal(t, want, w.out.String(), args)
		require.Empty(t, w.said(), args)
	}
	w := startWaiting(t, f, "-H", "a,down", "--format", "json")
	require.Zero(t, w.code(), w.said())
	var document fleet.WaitDocument
	require.NoError(t, json.Unmarshal([]byte(w.out.String()), &document))
	require.Equal(t, "genv.remote.wait/1", document.Schema)
	require.Equal(t, snapshot.Hostname("a"), document.Host)
	require.Equal(t, snapshot.DeviceIndex(1), document.GPUs[0].Index)
	require.Equal(t, "down", document.Failed[0].Host)
}

// TestWaitInVain: each end without room has its message, exit code 1, and no output.
func TestWaitInVain(t *testing.T) {
	f, a, _ := waitFleet(t)
	for args, want := range map[string]string{
		"-H a --within 60ms":           "genv: no host had 1 free GPU within 60ms\n",
		"-H down --within 60ms":        "genv: no host had 1 free GPU within 60ms\n",
		"-H a,b --gpus 5":              "genv: no host has 5 GPUs, free or not: `genv remote gpus` lists what there is\n",
		"-H a,b --model h100":          "genv: no host has 1 GPU of model h100, free or not: `genv remote gpus` lists what there is\n",
		"-H a,b --gpus 2 --memory 43g": "genv: no host has 2 GPUs with at least 43g of memory, free or not: `genv remote gpus` lists what there is\n",
		"-H a --gpus 0":                "genv: --gpus 0: write 1 or more\n",
		"-H a --memory much":           "genv: --memory: \"much\" is not an amount of memory",
		"-H a --within 0":              "genv: --within \"0\"",
		"-H a --interval 0":            "genv: --interval \"0\"",
		"-H a --format csv":            "genv: --format \"csv\"",
	} {
		w := startWaiting(t, f, strings.Fields(args)...)
		require.Equal(t, command.ExitFailed, w.code(), args)
		require.Contains(t, w.said(), want, args)
		require.Empty(t, w.out.String(), args)
	}
	w := startWaiting(t, f, "-H", "a,down", "-e")
	require.Equal(t, command.ExitSomeFailed, w.code())

	w = startWaiting(t, f, "-H", "a", "--interval", "1h")
	w.waitFor("Waiting for")
	require.EqualValues(t, 4, a.busy.Load())
	w.stop()
	require.Equal(t, command.ExitFailed, w.code())
	require.True(t, strings.HasSuffix(w.said(), "genv: interrupted: no host had 1 free GPU yet\n"), w.said())
}

// TestWaitDoesNotKnockAgain: a host that refuses the login isn't asked in each look, and doesn't end the wait.
func TestWaitDoesNotKnockAgain(t *testing.T) {
	f, _, b := waitFleet(t)
	require.NoError(t, f.Host("a").Inject(inprocess.Faults{AuthRefused: true}))
	w := startWaiting(t, f, "-H", "a,b")
	w.waitFor("auth (1)\n    a: ")
	looks := b.looks.Load()
	require.Eventually(t, func() bool { return b.looks.Load() > looks+5 }, time.Minute, 5*time.Millisecond)
	require.LessOrEqual(t, f.Host("a").Counts().Connections, 2)
	b.busy.Store(2)
	require.Zero(t, w.code())
	require.Equal(t, "b 2\n", w.out.String())
	require.Equal(t, 1, strings.Count(w.said(), "    a: "))
}

// offeringHost has a queue, and offers the GPUs 1 and 2 to those who wait once it may.
type offeringHost struct {
	*busyHost
	later  inprocess.Handler // answers when somebody has waited; nil for the same
	may    chan struct{}
	waits  atomic.Int32
	breaks bool // its first connection
}

func (h *offeringHost) Handle(ctx context.Context, r *inprocess.Request) int {
	switch {
	case strings.Contains(r.Line, "usage wait"):
		fmt.Fprintln(r.Stdout, `{"place":1,"people":1}`)
		if h.waits.Add(1) == 1 && h.breaks {
			return 1
		}
		select {
		case <-h.may:
			fmt.Fprintln(r.Stdout, `{"offered":[1,2]}`)
		case <-ctx.Done():
		}
		return 0
	case h.later != nil && h.waits.Load() > 0:
		return h.later.Handle(ctx, r)
	}
	return h.busyHost.Handle(ctx, r)
}

// TestWaitTakesAnOfferOnce: if it can't be used, the hosts are asked no faster, others still count, and its host is
// waited on again, as is one where the connection ended.
func TestWaitTakesAnOfferOnce(t *testing.T) {
	t.Parallel()
	const model = "NVIDIA A100-SXM4-40GB"
	inMIGMode := newBusyHost(model, 0)
	for i := range inMIGMode.modes {
		inMIGMode.modes[i] = ", 550.1, Disabled, Default, Enabled, 400"
	}
	failing := inprocess.Func(func(context.Context, *inprocess.Request) int { return 1 })
	for _, c := range []struct {
		later inprocess.Handler
		want  string
	}{{inMIGMode, "b 1,2\n"}, {inMIGMode, "c 0,1\n"}, {failing, "b 1,2\n"}, {failing, "c 0,1\n"}} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			hosts := []*offeringHost{{busyHost: newBusyHost(model, 4), later: c.later, may: make(chan struct{})}, {busyHost: newBusyHost(model, 4), may: make(chan struct{}), breaks: true}}
			plain := newBusyHost(model, 4)
			f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: hosts[0]}, &inprocess.Server{Name: "b", Handler: hosts[1]}, &inprocess.Server{Name: "c", Handler: plain})
			w := startWaiting(t, f, "-H", "a,b,c", "--gpus", "2", "--interval", "200ms")
			require.Eventually(t, func() bool { return hosts[0].waits.Load() > 0 && hosts[1].waits.Load() > 0 }, time.Minute, 5*time.Millisecond)
			close(hosts[0].may)
			looks, begun := plain.looks.Load(), time.Now()
			require.Eventually(t, func() bool { return hosts[0].waits.Load() > 4 }, time.Minute, 5*time.Millisecond)
			most := 2 * (time.Since(begun)/(200*time.Millisecond) + 2) // one after the interval, and one for an offer
			require.LessOrEqual(t, plain.looks.Load()-looks, int32(most))
			require.Empty(t, w.ended, w.said())
			if strings.HasPrefix(c.want, "b") {
				close(hosts[1].may)
			} else {
				plain.busy.Store(0)
			}
			require.Zero(t, w.code(), w.said())
			require.Equal(t, c.want, w.out.String())
		})
	}
}

// TestWaitReadsNoEndlessLine: a host that sends one has no queue.
func TestWaitReadsNoEndlessLine(t *testing.T) {
	const most = 16 // MiB, more than is on the way
	sent := make(chan int, 1)
	full := newBusyHost("Tesla T4", 4)
	f := genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: inprocess.Func(func(ctx context.Context, r *inprocess.Request) int {
		if !strings.Contains(r.Line, "usage wait") {
			return full.Handle(ctx, r)
		}
		part, n := []byte(strings.Repeat(" ", 1<<20)), 0
		for err := error(nil); err == nil && n < most; n++ {
			_, err = r.Stdout.Write(part)
		}
		sent <- n
		return 0
	})})
	w := startWaiting(t, f, "-H", "a")
	require.Less(t, <-sent, most)
	full.busy.Store(3)
	require.Zero(t, w.code(), w.said())
}
