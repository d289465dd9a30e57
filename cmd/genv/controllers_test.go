package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/controllers"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
)

// controllersShown runs `genv remote controllers`.
func controllersShown(t *testing.T, args ...string) (d controllers.Document, code int) {
	t.Helper()
	r := genv(t, append([]string{"remote", "controllers", "--format", "json"}, args...)...)
	require.NoError(t, json.Unmarshal([]byte(r.out), &d), r.err)
	return d, r.code
}

// Over real sshd, sudo and etcd: who leads, with the host's own note; a standby that is killed is
// lost, and one that ends in order isn't; etcd that doesn't answer is no answer.
func TestControllersOfAnElection(t *testing.T) {
	t.Parallel()
	e := newElectors(t, "gpu-01")
	url := "etcd://" + e.etcd.Addresses() + "/genv/lab"
	args := []string{"--leader", url, "-F", e.fleet.SSHConfig(), "-H", "gpu-01"}
	first := e.start("first")
	first.is(election.Leading)
	d, code := controllersShown(t, args...)
	require.Equal(t, command.ExitSomeFailed, code, "there is no standby")

	second := e.start("second")
	second.is(election.Standby)
	require.Eventually(t, func() bool {
		d, code = controllersShown(t, args...)
		return code == command.ExitOK && !d.Election.Memory.IsZero() && !d.Election.Controllers[0].Cycle.IsZero()
	}, time.Minute, 100*time.Millisecond, "the second one is registered")
	require.Len(t, d.Election.Controllers, 2)
	leader, host := d.Election.Controllers[0], d.Hosts[0]
	require.Equal(t, first.cmd.Process.Pid, leader.PID)
	require.EqualValues(t, "leading", leader.Role)
	require.EqualValues(t, "standby", d.Election.Controllers[1].Role)
	require.WithinDuration(t, time.Now(), leader.Cycle, time.Minute)
	require.Equal(t, 1, leader.Hosts)
	require.EqualValues(t, "acts", host.State)
	require.Equal(t, []any{"etcd", d.Election.Epoch, leader.Name, true}, []any{host.Kind, host.Epoch, host.Controller, host.Agrees})

	config := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(config, "config.yaml"), []byte("enforce:\n  leader: "+url+"\n"), 0o600))
	cmd := exec.Command(genvProgram(t), "remote", "controllers")
	cmd.Env = append(cmd.Environ(), "GENV_CONFIG_DIR="+config)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "Election /genv/lab: epoch ")
	require.NotContains(t, string(out), "gpu-01", "no host is asked")

	second.signal(os.Kill)
	require.Eventually(t, func() bool {
		d, code = controllersShown(t, args...)
		return code == command.ExitSomeFailed && d.Election.Controllers[1].Role == "lost"
	}, time.Minute, 100*time.Millisecond)
	first.signal(syscall.SIGTERM)
	first.exits(command.ExitOK)
	d, code = controllersShown(t, args...)
	require.Equal(t, command.ExitSomeFailed, code)
	require.False(t, d.Election.Leads)
	require.Len(t, d.Election.Controllers, 1, "the first one ended in order")
	require.EqualValues(t, "released", d.Hosts[0].State)

	for i := range 3 {
		e.etcd.Kill(i)
	}
	r := genv(t, "remote", "controllers", "--leader", url)
	require.Equal(t, command.ExitSomeFailed, r.code)
	require.Contains(t, r.err, "etcd doesn't say which controller leads")
	require.Empty(t, r.out)
	d, code = controllersShown(t, args...)
	require.Equal(t, command.ExitSomeFailed, code)
	require.Nil(t, d.Election)
	require.NotEmpty(t, d.Etcd.Error)
	require.EqualValues(t, "released", d.Hosts[0].State)
	d, code = controllersShown(t, append(args, "--leader", "off")...)
	require.Equal(t, command.ExitSomeFailed, code, "nothing is enforced")
	require.Nil(t, d.Etcd)
	require.Len(t, d.Hosts, 1)
}

// Without etcd: what the hosts say, which may not agree.
func TestControllersOfHosts(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Genv: genvProgram(t)})
	dir := t.TempDir()
	ask := []string{"-F", f.SSHConfig(), "-H", "gpu-01,gpu-02"}
	states := func() (states [2]controllers.State, code int) {
		d, code := controllersShown(t, ask...)
		require.Nil(t, d.Election)
		return [2]controllers.State{d.Hosts[0].State, d.Hosts[1].State}, code
	}
	got, code := states()
	require.Equal(t, [2]controllers.State{"none", "none"}, got)
	require.Equal(t, command.ExitSomeFailed, code, "nothing is enforced")
	begin := func(name, hosts string) *background {
		d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", hosts, "--interval", "1", "--state-dir", filepath.Join(dir, name))
		d.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
		return d
	}
	first := begin("first", "gpu-01")
	got, code = states()
	require.Equal(t, [2]controllers.State{"acts", "none"}, got)
	require.Equal(t, command.ExitOK, code)
	begin("second", "gpu-02")
	d, code := controllersShown(t, ask...)
	require.Equal(t, command.ExitSomeFailed, code)
	require.Len(t, d.Problems, 1)
	require.NotEqual(t, d.Hosts[0].Agrees, d.Hosts[1].Agrees)
	first.signal(syscall.SIGTERM)
	first.exits(command.ExitOK)
	got, code = states()
	require.Equal(t, [2]controllers.State{"released", "acts"}, got)
	require.Equal(t, command.ExitOK, code)
}
