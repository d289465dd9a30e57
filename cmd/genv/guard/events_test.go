package guard

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// answeringSMI gives the site an nvidia-smi that answers.
func (s *site) answeringSMI() {
	s.Helper()
	devices := gpus.H100s(filepath.Base(s.dir), 4)
	for index := range devices {
		devices[index].UUID = fmt.Sprint("GPU-", index)
	}
	file, program := filepath.Join(s.dir, "gpus.json"), filepath.Join(s.dir, "driver", "nvidia-smi")
	require.NoError(s, gpus.Driver{Devices: devices}.Write(file))
	require.NoError(s, os.Mkdir(filepath.Dir(program), 0o755))
	require.NoError(s, testfleet.InstallProgram("remote/testfleet/gpus/nvidia-smi", program))
	script := fmt.Sprintf("#!/bin/sh\nGENV_SIM_GPUS=%s exec %s \"$@\"\n", file, program)
	require.NoError(s, proctest.WriteProgram(filepath.Join(s.dir, "nvidia-smi"), []byte(script)))
}

// look has the host looked at.
func (c *stream) look() {
	c.Helper()
	var answer struct{}
	c.ask(agent.RequestSnapshot, agent.SnapshotRequest{}, &answer)
}

// wakes reports whether a wait ends by an event within some time.
func (c *stream) wakes(within time.Duration) bool {
	c.Helper()
	var answer agent.WaitAnswer
	c.ask(agent.RequestWait, agent.WaitRequest{MaxMS: within.Milliseconds()}, &answer)
	return answer.Woke
}

// quiet looks until nothing happens any more.
func (c *stream) quiet() {
	c.Helper()
	require.Eventually(c, func() bool { c.look(); return !c.wakes(never) }, 20*time.Second, time.Millisecond)
}

// never is how long nothing may happen.
const never = 300 * time.Millisecond

// TestAnOpenThroughAnotherNodeWakes: the nodes in the site's folder are not those that the
// streams watch, as those that a container runtime made. The guard sees their opens.
func TestAnOpenThroughAnotherNodeWakes(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		mode   guard.Mode
		uid    int
		second bool // another process keeps the guard of the stream
		want   bool
	}{
		"an attached user":                    {guard.Enforce, alice, false, true},
		"another process keeps the guard":     {guard.Enforce, alice, true, true},
		"denied":                              {guard.Enforce, bob, false, false},
		"would be denied":                     {guard.Watch, bob, false, true},
		"root, as in a container":             {guard.Enforce, 0, false, true},
		"off":                                 {guard.Off, alice, false, false},
		"off, while another process waits":    {guard.Off, alice, true, false},
		"root, while a guard only watches it": {guard.Watch, 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.answeringSMI()
			a, b := s.person(alice).activate(), s.person(bob)
			a.attach(0)
			keeper := s.serve()
			keeper.order(asked(row.mode, time.Minute))
			if row.mode == guard.Enforce {
				b.until("denied", 0)
			} else {
				require.Eventually(t, func() bool { return s.document().Mode == row.mode }, 20*time.Second, 10*time.Millisecond)
			}
			c := keeper
			if row.second {
				c = s.serve()
			}
			p := s.person(row.uid)
			other := filepath.Join(s.dir, "another")
			require.NoError(t, unix.Mknod(other, unix.S_IFCHR|0o666, int(unix.Mkdev(195, 3))))
			require.NoError(t, os.Chmod(other, 0o666))
			require.True(t, c.wakes(time.Second), "the first wait")
			c.quiet()

			began := time.Now()
			require.Equal(t, row.want || row.mode == guard.Off || row.uid == 0, p.askPath("open", other) == "allowed")
			within := 10 * time.Second
			if !row.want {
				within = never
			}
			require.Equal(t, row.want, c.wakes(within))
			if row.want {
				t.Logf("after %s", time.Since(began).Round(time.Millisecond))
				require.Equal(t, p.cmd.Process.Pid, int(s.opened()[0]))
			} else {
				require.NoFileExists(t, filepath.Join(s.root, "run", watch.OpenLogFile))
			}
		})
	}
}

// TestStatusSaysWhatReportsOpens: the guard only as long as a process reads its reports.
func TestStatusSaysWhatReportsOpens(t *testing.T) {
	t.Parallel()
	const through = "the guard reports opens of guarded GPUs, through any node"
	s := newSite(t)
	require.False(t, s.document().Events.Guard)
	require.NotContains(t, s.must("guard", "status"), through)
	b, g := s.person(bob), s.run("--mode", "enforce", "--lease", "60s")
	b.until("denied", 0)
	require.Eventually(t, func() bool { return s.document().Events.Guard }, 20*time.Second, 10*time.Millisecond)
	require.Contains(t, s.must("guard", "status"), through)
	g.signal(syscall.SIGKILL)
	require.False(t, b.opens(0))
	require.Equal(t, guard.Enforce, s.document().Mode)
	require.False(t, s.document().Events.Guard)
}

// opened are the PIDs of those who opened a device as the guard says.
func (s *site) opened() []snapshot.PID {
	s.Helper()
	var content struct {
		PIDs []snapshot.PID `json:"pids"`
	}
	data, err := os.ReadFile(filepath.Join(s.root, "run", watch.OpenLogFile))
	require.NoError(s, err)
	require.NoError(s, json.Unmarshal(data, &content))
	return content.PIDs
}
