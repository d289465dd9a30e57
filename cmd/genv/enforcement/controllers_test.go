package enforcement_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	remotedoctor "github.com/seed-3119e985/genv/remote/doctor"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func doctorSays(t *testing.T, args ...string) (d remotedoctor.FleetReport, code int) {
	t.Helper()
	r := genvtest.Run(t, append([]string{"remote", "doctor", "--format", "json"}, args...)...)
	return genvtest.Decode[remotedoctor.FleetReport](t, r), r.Code
}

// row is the first row about an election with a name.
func row(d *remotedoctor.FleetReport, name doctor.Name) (c doctor.Check) {
	if i := slices.IndexFunc(d.Controllers, func(c doctor.Check) bool { return c.Name == name }); i >= 0 {
		c = d.Controllers[i]
	}
	return c
}

// Over real sshd, sudo and etcd: who leads, with the host's own note; a standby that is killed is
// lost, and one that ends in order isn't; etcd that doesn't answer is no answer.
func TestControllersOfAnElection(t *testing.T) {
	t.Parallel()
	e := newElectors(t, "gpu-01")
	url := "etcd://" + e.etcd.Addresses() + "/genv/lab"
	args := []string{"--leader", url, "-F", e.fleet.SSHConfig(), "-H", "gpu-01"}
	first := e.startAs(election.Leading, "first")
	d, code := doctorSays(t, args...)
	require.Equal(t, command.ExitOK, code)
	require.EqualValues(t, "no-standby", row(&d, "standby").Cause)

	second := e.startAs(election.Standby, "second")
	require.Eventually(t, func() bool {
		d, code = doctorSays(t, args...)
		bad := slices.ContainsFunc(d.Controllers, func(c doctor.Check) bool { return c.Status != doctor.OK })
		return !bad && strings.Contains(row(&d, "leader").Detail, "memory in etcd of") && strings.Contains(row(&d, "leader").Detail, "the last cycle ended")
	}, time.Minute, 500*time.Millisecond, "the second one is registered")
	require.Equal(t, command.ExitOK, code)
	leader := nameOf(first.background)
	require.Contains(t, row(&d, "leader").Detail, leader)
	require.Contains(t, row(&d, "leader").Detail, "1 of 1 hosts answer")
	require.Contains(t, row(&d, "standby").Detail, nameOf(second.background))
	host := d.Hosts[0].Check(doctor.Controller)
	require.Contains(t, host.Detail, "acts: ")
	require.Contains(t, host.Detail, leader)
	require.Contains(t, host.Detail, "of etcd")

	config := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(config, "config.yaml"), []byte("enforce:\n  leader: "+url+"\n"), 0o600))
	cmd := exec.Command(genvtest.Program(t), "remote", "doctor", "-F", e.fleet.SSHConfig(), "-H", "gpu-01")
	cmd.Env = append(cmd.Environ(), "GENV_CONFIG_DIR="+config)
	out := proctest.Output(t, cmd)
	require.Regexp(t, `(?m)^leader +ok `, out)
	require.Regexp(t, `(?m)^gpu-01 .* ok$`, out)

	second.signal(os.Kill)
	require.Eventually(t, func() bool {
		d, code = doctorSays(t, args...)
		return row(&d, "lost").Cause == "controller-lost"
	}, time.Minute, 500*time.Millisecond)
	first.signal(syscall.SIGTERM).exits(command.ExitOK)
	d, code = doctorSays(t, args...)
	require.Equal(t, command.ExitSomeFailed, code)
	require.EqualValues(t, "no-leader", row(&d, "leader").Cause)
	require.Empty(t, row(&d, "standby"), "the first one ended in order")
	require.Contains(t, d.Hosts[0].Check(doctor.Controller).Detail, "no controller acts; the last one was ")

	for i := range 3 {
		e.etcd.Kill(i)
	}
	d, code = doctorSays(t, args...)
	require.Equal(t, command.ExitSomeFailed, code)
	require.EqualValues(t, "etcd-silent", row(&d, "etcd").Cause)
	require.Contains(t, d.Hosts[0].Check(doctor.Controller).Detail, "no controller acts; the last one was ")
	d, code = doctorSays(t, append(args, "--leader", "off")...)
	require.Equal(t, command.ExitOK, code)
	require.Empty(t, d.Controllers)
	require.Equal(t, doctor.OK, d.Hosts[0].Check(doctor.Controller).Status)
}

// nameOf is how a controller is named, in part.
func nameOf(d *background) string { return fmt.Sprintf(", process %d\"", d.cmd.Process.Pid) }

// Without etcd: what the hosts say, which may not agree.
func TestControllersOfHosts(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: sshd.Named("gpu-01", "gpu-02"), Genv: genvtest.Program(t)})
	dir := t.TempDir()
	states := func(causes int, said ...string) {
		t.Helper()
		d, code := doctorSays(t, "-F", f.SSHConfig(), "-H", "gpu-01,gpu-02")
		require.Equal(t, command.ExitOK, code)
		require.Empty(t, d.Controllers)
		for i, words := range said {
			c := d.Hosts[i].Check(doctor.Controller)
			require.Contains(t, c.Detail, words)
			if c.Cause != "" {
				causes--
				require.EqualValues(t, "other-controller", c.Cause)
			}
		}
		require.Zero(t, causes)
	}
	states(0, "no controller has acted yet", "no controller has acted yet")
	begin := func(name, hosts string) *background {
		d := startDaemon(t, nil, "-F", f.SSHConfig(), "-H", hosts, "--interval", "1", "--state-dir", filepath.Join(dir, name))
		d.next(func(c enforcement.CycleDocument) bool { return c.Answered == 1 })
		return d
	}
	first := begin("first", "gpu-01")
	states(0, "acts: ", "no controller has acted yet")
	second := begin("second", "gpu-02")
	states(1, nameOf(first), nameOf(second))
	first.signal(syscall.SIGTERM).exits(command.ExitOK)
	states(0, "no controller acts; the last one was ", "acts: ")
}
