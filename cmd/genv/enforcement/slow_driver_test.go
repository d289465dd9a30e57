package enforcement_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// Over a real sshd and sudo: the first look needs two calls of nvidia-smi, and one takes most of the time that a host
// has for an answer; on gpu-02 it takes more than that. What breaks a rule is ended, and what keeps the rules isn't.
func TestASlowDriverIsNotALostOne(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Genv: genvtest.Program(t)})
	var honest, others []*testfleet.Process
	for host, delay := range map[string]time.Duration{"gpu-01": 900 * time.Millisecond, "gpu-02": 1600 * time.Millisecond} {
		h := f.Host(host)
		require.NoError(t, h.ChangeDriver(func(d *gpus.Driver) { d.DelayMS = int(delay.Milliseconds()) }))
		env, err := h.Activate(testfleet.Environment{User: "carol"})
		require.NoError(t, err)
		require.NoError(t, h.Attach(env, 1, time.Now()))
		p, err := h.StartJob(testfleet.Job{User: "carol", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 1, MiB: 10}}})
		require.NoError(t, err)
		honest = append(honest, p)
		p, err = h.StartJob(testfleet.Job{User: "bob", Env: genvtest.Outside, Uses: []testfleet.Use{{Device: 0, MiB: 10}}})
		require.NoError(t, err)
		others = append(others, p)
	}
	d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02", "--interval", "1", "--command-timeout", "1500ms", "--state-dir", t.TempDir(), "--non-env-processes")
	for _, p := range others {
		select {
		case <-p.Ended():
		case <-time.After(4 * time.Minute):
			require.Fail(t, "nothing was enforced")
		}
	}
	for _, p := range honest {
		require.True(t, p.Running())
	}
	d.signal(os.Interrupt)
	d.end()
}
