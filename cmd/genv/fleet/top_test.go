package fleet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// pane is a terminal in tmux, with a program on it.
type pane struct {
	t      *testing.T
	server string // the socket of a tmux of its own
}

// startPane runs a program on a terminal of a size.
func startPane(t *testing.T, width, height int, env []string, command ...string) *pane {
	proctest.NeedPrograms(t, "tmux")
	s := &pane{t, filepath.Join(t.TempDir(), "tmux")}
	args := []string{"-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(width), "-y", fmt.Sprint(height)}
	for _, variable := range append([]string{"HOME=" + t.TempDir(), "LC_ALL=C.UTF-8"}, env...) {
		args = append(args, "-e", variable)
	}
	s.tmux(append(args, command...)...)
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", s.server, "kill-server").Run() }) // it ends with the program
	return s
}

func (s *pane) tmux(args ...string) string {
	s.t.Helper()
	out := proctest.Output(s.t, exec.Command("tmux", append([]string{"-u", "-S", s.server}, args...)...))
	return out
}

func (s *pane) press(keys ...string) { s.tmux(append([]string{"send-keys"}, keys...)...) }

func (s *pane) text() string { return s.tmux("capture-pane", "-p") }

// shows waits until the screen shows a text, on one line, and returns the screen.
func (s *pane) shows(parts ...string) string {
	s.t.Helper()
	var text string
	found := func() bool {
		text = s.text()
		for line := range strings.Lines(text) {
			if !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(line, part) }) {
				return true
			}
		}
		return false
	}
	for begun := time.Now(); !found(); time.Sleep(50 * time.Millisecond) {
		require.Less(s.t, time.Since(begun), time.Minute, "%q is not on the screen:\n%s", parts, text)
	}
	return text
}

// selected is the line of the selected row; empty if there is none.
func (s *pane) selected() string {
	for line := range strings.Lines(s.text()) {
		if strings.HasPrefix(line, ">") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// ended waits until the program has ended.
func (s *pane) ended() {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return exec.Command("tmux", "-S", s.server, "has-session").Run() != nil
	}, time.Minute, 50*time.Millisecond)
}

// startController runs `genv remote enforce` until its socket is there.
func startController(t *testing.T, path string, args ...string) (stop func()) {
	cmd := exec.Command(genvtest.Program(t), append([]string{"remote", "enforce"}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "XDG_STATE_HOME="+t.TempDir())
	require.NoError(t, cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		_ = cmd.Wait()                       // so may it
	})
	t.Cleanup(stop)
	require.Eventually(t, func() bool { _, err := os.Stat(path); return err == nil }, time.Minute, 20*time.Millisecond)
	return stop
}

// twoGPUs is a host on which alice has a GPU and uses it, and the other one is free.
func twoGPUs() *genvhost.Host {
	busy, uid := 80, snapshot.UID(1001)
	return genvhost.New(&snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "7", UID: uid, Username: "alice", Config: snapshot.EnvConfig{Name: "train"}}},
		Devices: []snapshot.Device{
			{Index: 0, UUID: "GPU-0", Name: "NVIDIA A100", TotalMemory: snapshot.MiB(81920), UsedMemory: snapshot.MiB(4000), Utilization: &busy, Attachments: []snapshot.Attachment{{EID: "7"}}},
			{Index: 1, UUID: "GPU-1", Name: "NVIDIA A100", TotalMemory: snapshot.MiB(81920), UsedMemory: snapshot.MiB(0)},
		},
		Processes: []snapshot.Process{{PID: 77, Start: 5, UID: &uid, Username: "alice", EID: "7", Name: "python", Command: "python train.py", Usage: []snapshot.DeviceUsage{{Index: 0, Memory: snapshot.MiB(4000)}}}},
	})
}

// appears is a process of bob in no environment, on the other GPU.
func appears(h *genvhost.Host) {
	h.Change(func(s *snapshot.Snapshot) {
		s.Processes = append(s.Processes, snapshot.Process{PID: 66, Start: 9, UID: new(snapshot.UID(1002)), Username: "bob", Name: "steal", Command: "steal --all", Usage: []snapshot.DeviceUsage{{Index: 1, Memory: snapshot.MiB(900)}}})
	})
}

// topFleet is two hosts, and the flags of a controller of them.
func topFleet(t *testing.T) (f *inprocess.Fleet, a *genvhost.Host, path string, flags []string) {
	a = twoGPUs()
	f = genvtest.StartFleet(t, &inprocess.Server{Name: "a", Handler: a}, &inprocess.Server{Name: "b", Handler: twoGPUs()})
	dir := t.TempDir()
	path = filepath.Join(dir, "s")
	policy := path + ".yaml"
	warnFor(t, policy, "1h")
	return f, a, path, []string{
		"-F", f.SSHConfig(), "-H", "a,b", "--interval", "300ms", "--socket", path, "--policy", policy, "--audit-log", filepath.Join(dir, "log"),
	}
}

// warnFor writes a policy that ends processes in no environment after a time.
func warnFor(t *testing.T, policy, time string) {
	require.NoError(t, os.WriteFile(policy, []byte("defaults:\n  non-env-processes: true\n  warn: {for: "+time+"}\n"), 0o600))
}

// TestTopOnATerminal: a process appears, is found, is waited for, and is ended, while the selected row stays selected.
func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	f, a, path, flags := topFleet(t)
	warnFor(t, path+".yaml", "40s")
	startController(t, path, flags...)
	s := startPane(t, 110, 20, nil, genvtest.Program(t), "remote", "-F", f.SSHConfig(), "top", "--socket", path)
	s.shows("> a", "A100", "A.", "1/2", "alice")
	s.press("5")
	s.press("j")
	s.shows("> b", "77", "alice", "python train.py")
	appears(a)
	s.shows("  a", "66", "bob", "! finding", "steal --all")
	require.Contains(t, s.selected(), "77  alice", "another process has appeared above it")
	require.True(t, strings.HasPrefix(s.selected(), "> b"))
	s.press("4")
	s.shows("> in ", "bob", "a ", "non-env-processes")
	s.press("1")
	s.shows("> a", "A!", "0/2", "alice bob")
	s.press("4")
	s.shows("> in ", "bob")
	s.shows("the finding isn't here any more")
	require.Empty(t, s.selected())
	s.press("5")
	require.NotContains(t, s.shows("> b", "77"), "steal", "it has been ended")
	s.press("6")
	s.shows("outcome", "bob", "terminated", "process 66")
	s.press("1")
	s.shows("> a", "A.", "1/2")
	drillDown(s)
	s.press("q")
	s.ended()
}

// drillDown goes into a host and its GPU, in a large window and in a small one.
func drillDown(s *pane) {
	s.press("Enter")
	s.shows("[2:GPUs of a]")
	s.press("Enter")
	s.shows("[5:processes of GPU 0 of a]")
	s.press("e")
	s.shows("this view is read-only: start it with --allow-actions")
	s.press("Escape")
	s.shows("[2:GPUs of a]")
	s.tmux("resize-window", "-x", "40", "-y", "10")
	s.shows("1 [2:GPUs of a] 3 4 5 6 7")
	s.tmux("resize-window", "-x", "110", "-y", "20")
	s.shows("1:hosts [2:GPUs of a] 3:users")
}

// TestTopAsksTheController: a user is exempted; then the controller goes away and comes back.
func TestTopAsksTheController(t *testing.T) {
	t.Parallel()
	_, _, path, flags := topFleet(t)
	stop := startController(t, path, flags...)
	s := startPane(t, 110, 20, nil, genvtest.Program(t), "remote", "top", "--socket", path, "--allow-actions")
	s.shows("> a", "A.", "1/2")
	s.press("5")
	s.shows("> a", "77", "alice")
	s.press("e")
	s.shows("for how many hours:")
	s.press("8", "Enter")
	s.shows("reason:")
	s.press("m", "i", "n", "e", "Enter")
	s.shows("exempt user alice on host a")
	s.shows("Ask for this? y/n")
	s.press("y")
	s.shows("exempted user alice")
	s.press("6")
	s.shows("exempted user alice")

	stop()
	s.shows("OLD: ")
	s.shows("No new data: the controller doesn't answer")
	startController(t, path, flags...)
	require.Eventually(t, func() bool { return !strings.Contains(s.text(), "OLD: ") }, time.Minute, 50*time.Millisecond, "it comes back")
	s.press("q")
	s.ended()
}

// TestTopWithoutAController: the program looks itself, until there is a controller.
func TestTopWithoutAController(t *testing.T) {
	f, _, path, flags := topFleet(t)
	bin := t.TempDir()
	require.NoError(t, proctest.WriteProgram(filepath.Join(bin, "ssh"), []byte("#!/bin/sh\necho \"ssh was called with $*.\"\nread line\n")))
	env := []string{"GENV_SOCKET=" + path, "NO_COLOR=1"}
	s := startPane(t, 110, 20, env, "env", "PATH="+bin+":"+os.Getenv("PATH"), genvtest.Program(t), "remote", "-F", f.SSHConfig(), "-H", "a,b", "top", "-i", "200ms")
	s.shows("2 hosts", "watching (own looks)")
	s.shows("> a", "A.", "1/2", "alice")
	require.NotRegexp(t, `\x1b\[[0-9;]*[34][0-7]`, s.tmux("capture-pane", "-p", "-e"), "NO_COLOR")
	s.press("o")
	s.shows("ssh was called with -F " + f.SSHConfig() + " -- a.")
	s.press("Enter")
	s.shows("> a", "A.", "1/2", "alice")
	startController(t, path, flags...)
	s.shows("2 hosts", "enforcing (controller)")
	s.press("q")
	s.ended()

	r := genvtest.Run(t, "remote", "-F", f.SSHConfig(), "-H", "a", "top", "--plain", "--once", "--socket", path).OK(t)
	require.Regexp(t, `^\S+ a: 1 of 2 GPUs free, 1 busy; memory 3\.9/160 GiB; utilization \?; users alice\n$`, r.Out)
	genvtest.Run(t, "remote", "top", "--socket", path).Exits(t, 1, "the output is not a terminal: --plain prints lines, and with --once it ends")
	genvtest.Run(t, "remote", "top", "--plain", "--socket", path+"x").Exits(t, 1, "no controller listens there; start `genv remote enforce` or `genv remote watch` with this --socket, or look at the hosts: --socket off -H HOSTS")
	genvtest.Run(t, "remote", "top", "--plain", "--socket", "off").Exits(t, 1, "genv: no controller is asked: no hosts are selected; use -H a,b or --hostfile FILE")
}
