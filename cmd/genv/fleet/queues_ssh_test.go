package fleet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// TestWaitInTheQueuesOfHosts: one wait with one id in the queues of two hosts. The first that keeps GPUs for it is the
// one, and the other one forgets it.
func TestWaitInTheQueuesOfHosts(t *testing.T) {
	t.Parallel()
	f := sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "one", Rights: sshd.MaySudo}, {Name: "two", Rights: sshd.MaySudo}}, Genv: genvtest.Program(t)})
	ssh := func(host, line string) *exec.Cmd { return exec.Command("ssh", "-tt", "-F", f.SSHConfig(), host, line) }
	var eid snapshot.EnvID
	for _, host := range []string{"one", "two"} {
		env, err := f.Host(host).Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0, 1, 2, 3, 4, 5, 6, 7}})
		require.NoError(t, err)
		eid = env.EID
		serve := ssh(host, "sudo -n genv host serve")
		in, err := serve.StdinPipe()
		require.NoError(t, err)
		require.NoError(t, serve.Start())
		t.Cleanup(func() { _ = in.Close(); _ = serve.Process.Kill(); _ = serve.Wait() })
	}
	ids := func(host string) []string {
		list := service.Waits(filepath.Join(f.Host(host).Root(), "run"), func(snapshot.PID, snapshot.StartTime) bool { return true })
		if list == nil {
			return nil
		}
		ids := []string{}
		for _, w := range list {
			ids = append(ids, w.ID)
		}
		return ids
	}
	for _, host := range []string{"one", "two"} {
		require.Eventually(t, func() bool { return ids(host) != nil }, time.Minute, 50*time.Millisecond)
	}
	begin := func(args ...string) (cmd *exec.Cmd, out, errs *strings.Builder) {
		cmd = exec.Command(genvtest.Program(t), append([]string{"remote"}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, errs = new(strings.Builder), new(strings.Builder)
		cmd.Stdout, cmd.Stderr = out, errs
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		require.Eventually(t, func() bool {
			one, two := ids("one"), ids("two")
			return len(one) == 1 && len(two) == 1 && one[0] == two[0]
		}, time.Minute, 50*time.Millisecond)
		return cmd, out, errs
	}
	cmd, out, errs := begin("wait", "-F", f.SSHConfig(), "-H", "one,two", "--gpus", "2", "--interval", "1h")
	time.Sleep(3 * time.Second) // the place is said once a second at most, and it is noted who waits
	for format, want := range map[string]string{"tui": "\n1 command waits for GPUs: operator for 2\n", "json": `,"waits":[{"id":"` + ids("one")[0] + `",`} {
		list := exec.Command(genvtest.Program(t), "remote", "gpus", "-F", f.SSHConfig(), "-H", "one,two", "--format", format)
		list.Env = append(os.Environ(), "HOME="+t.TempDir())
		require.Contains(t, genvtest.Exec(t, list).Out, want)
	}
	text, err := ssh("two", fmt.Sprintf("sudo -n genv devices detach --eid %s --index 2,5", eid)).CombinedOutput()
	require.NoError(t, err, string(text))
	require.NoError(t, cmd.Wait(), errs.String())
	require.Equal(t, "two 2,5\n", out.String())
	require.Contains(t, errs.String(), "\nWaiting: place 1 of 1 on one, two\n")
	require.Eventually(t, func() bool { return len(ids("one"))+len(ids("two")) == 0 }, 20*time.Second, 50*time.Millisecond)

	activate := []string{"activate", "-F", f.SSHConfig(), "-H", "one,two", "--gpus", "2", "--wait=8"}
	unready := exec.Command(genvtest.Program(t), append([]string{"remote"}, activate...)...)
	unready.Env = append(os.Environ(), "HOME="+t.TempDir())
	require.Equal(t, genvtest.Result{
		Err: "genv: your login shell is not set up on one, two: docs/using-gpus.md has the line for its rc file\n", Code: 1,
	}, genvtest.Exec(t, unready), "it doesn't wait for a turn that would be lost")
	for _, host := range []string{"one", "two"} {
		profile := filepath.Join(f.Dir, "home", f.Host(host).User, ".profile")
		require.NoError(t, os.WriteFile(profile, []byte("genv() { :; }\n"), 0o644))
	}
	cmd, _, errs = begin(activate...)
	require.Error(t, cmd.Wait())
	require.Equal(t, 75, cmd.ProcessState.ExitCode(), errs.String())
	require.Contains(t, errs.String(), "\nWaiting: place 1 of 1 on one, two\n")
	require.Contains(t, errs.String(), "it was not your turn within 8s")
}
