package enforcement_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// Over a real sshd and sudo: what breaks a rule is ended long before the next cycle, also while
// a user has the same host opened all the time, and nothing else is. kill -9 of the
// controller ends what waits on the hosts.
func TestEventsOverSSH(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Genv: genvtest.Program(t)})
	env, err := f.Host("gpu-01").Activate(testfleet.Environment{User: "carol", Devices: nil})
	require.NoError(t, err)
	require.NoError(t, f.Host("gpu-01").Attach(env, 1, time.Now()))
	flood, err := f.Host("gpu-01").StartJob(testfleet.Job{User: "alice", Command: []string{
		"/bin/sh", "-c", `while :; do : <"$0"; done`, filepath.Join(f.Host("gpu-01").Dev, "nvidia3"),
	}})
	require.NoError(t, err)
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--interval", "120", "--state-dir", t.TempDir(), "--non-env-processes")
	d.next(func(c enforcement.CycleDocument) bool { return c.Answered == 2 })

	begun := time.Now()
	honest, err := f.Host("gpu-01").StartJob(testfleet.Job{User: "carol", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 1, MiB: 10}}, Opens: true})
	require.NoError(t, err)
	for _, host := range []string{"gpu-02", "gpu-01", "gpu-02"} {
		p, err := f.Host(host).StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}, Opens: true})
		require.NoError(t, err)
		select {
		case <-p.Ended():
		case <-time.After(time.Minute):
			require.Fail(t, "it was not ended before the next cycle", host)
		}
	}
	require.Less(t, time.Since(begun), 110*time.Second)
	require.True(t, honest.Running())
	require.True(t, flood.Running())

	d.signal(os.Kill)
	d.end()
	require.Eventually(t, func() bool { return !runs(filepath.Join(f.Dir, "bin", "genv")) }, 20*time.Second, 20*time.Millisecond, "genv on the hosts ends")
}

// runs reports whether any process runs a program.
func runs(program string) bool {
	links, _ := filepath.Glob("/proc/[0-9]*/exe") // the pattern is well formed
	for _, link := range links {
		if path, err := os.Readlink(link); err == nil && strings.TrimSuffix(path, " (deleted)") == program {
			return true
		}
	}
	return false
}
