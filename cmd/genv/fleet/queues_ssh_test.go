package fleet_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/sshd"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// twoQueues are hosts, one and two, with a queue each, on which an environment has all GPUs.
type twoQueues struct {
	*testing.T
	fleet *sshd.Fleet
	eids  map[string]snapshot.EnvID
}

func startTwoQueues(t *testing.T) *twoQueues {
	q := &twoQueues{t, sshd.Start(t, sshd.Options{Hosts: []sshd.HostOptions{{Name: "one", Rights: sshd.MaySudo}, {Name: "two", Rights: sshd.MaySudo}}, Genv: genvtest.Program(t)}), map[string]snapshot.EnvID{}}
	for _, host := range []string{"one", "two"} {
		env := genvtest.Activate(t, q.fleet.Host(host), testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0, 1, 2, 3, 4, 5, 6, 7}})
		q.eids[host] = env.EID
		serve := q.ssh(host, "sudo -n genv host serve")
		in := proctest.Try(serve.StdinPipe()).OK(t)
		require.NoError(t, serve.Start())
		t.Cleanup(func() { _ = in.Close(); _ = serve.Process.Kill(); _ = serve.Wait() })
	}
	for host := range q.eids {
		require.Eventually(t, func() bool { return q.ids(host) != nil }, time.Minute, 50*time.Millisecond)
	}
	return q
}

func (q *twoQueues) ssh(host, line string) *exec.Cmd {
	return exec.Command("ssh", "-tt", "-F", q.fleet.SSHConfig(), host, line)
}

func (q *twoQueues) detach(host, indices string) *exec.Cmd {
	return q.ssh(host, fmt.Sprintf("sudo -n genv devices detach --eid %s --index %s", q.eids[host], indices))
}

// ids are those of who waits on a host; nil if that is unknown.
func (q *twoQueues) ids(host string) []string {
	list := service.Waits(filepath.Join(q.fleet.Host(host).Root(), "run"), func(snapshot.PID, snapshot.StartTime) bool { return true })
	if list == nil {
		return nil
	}
	ids := []string{}
	for _, w := range list {
		ids = append(ids, w.ID)
	}
	return ids
}

// remote is `genv remote` with the hosts after its first argument.
func (q *twoQueues) remote(args ...string) *exec.Cmd {
	args = append([]string{"remote", args[0], "-F", q.fleet.SSHConfig(), "-H", "one,two"}, args[1:]...)
	cmd := exec.Command(genvtest.Program(q), args...)
	cmd.Env = append(os.Environ(), "HOME="+q.TempDir())
	return cmd
}

// begin starts it, and returns when it waits on both hosts.
func (q *twoQueues) begin(args ...string) (cmd *exec.Cmd, out, errs *testfleet.ProgramOutput) {
	cmd, out, errs = q.remote(args...), new(testfleet.ProgramOutput), new(testfleet.ProgramOutput)
	cmd.Stdout, cmd.Stderr = out, errs
	require.NoError(q, cmd.Start())
	q.Cleanup(func() { _ = cmd.Process.Kill() })
	require.Eventually(q, func() bool {
		one, two := q.ids("one"), q.ids("two")
		return len(one) == 1 && len(two) == 1 && one[0] == two[0]
	}, time.Minute, 50*time.Millisecond)
	return cmd, out, errs
}

func (q *twoQueues) noOneWaits() {
	require.Eventually(q, func() bool { return len(q.ids("one"))+len(q.ids("two")) == 0 }, 20*time.Second, 50*time.Millisecond)
}

// TestAnOfferOfAnotherHost: where two hosts keep GPUs for a wait, the offer that isn't taken is withdrawn, not let pass.
func TestAnOfferOfAnotherHost(t *testing.T) {
	t.Parallel()
	q := startTwoQueues(t)
	cmd, out, errs := q.begin("wait", "--gpus", "2", "--interval", "1h")
	var work errgroup.Group
	for host := range q.eids {
		work.Go(q.detach(host, "3,4").Run)
	}
	require.NoError(t, work.Wait())
	require.NoError(t, cmd.Wait(), errs.String())
	taken, _, _ := strings.Cut(out.String(), " ")
	require.Equal(t, taken+" 3,4\n", out.String())
	other := map[string]string{"one": "two", "two": "one"}[taken]
	var note struct {
		Passed map[snapshot.UID]time.Duration `json:"passed_until_ns"`
	}
	withdrawn := func() bool {
		data, err := os.ReadFile(filepath.Join(q.fleet.Host(other).Root(), "run", service.WaitsFile))
		return err == nil && json.Unmarshal(data, &note) == nil && len(note.Passed) == 1
	}
	require.Eventually(t, withdrawn, 20*time.Second, 50*time.Millisecond)
	since := proctest.Try(proc.SinceBoot()).OK(t)
	for _, until := range note.Passed {
		require.Less(t, until, since+2*time.Minute, "it wasn't let pass")
	}
	q.noOneWaits()
}

// TestWaitInTheQueuesOfHosts: one wait with one id in the queues of two hosts. The first that keeps GPUs for it is the
// one, and the other one forgets it.
func TestWaitInTheQueuesOfHosts(t *testing.T) {
	t.Parallel()
	q := startTwoQueues(t)
	cmd, out, errs := q.begin("wait", "--gpus", "2", "--interval", "1h")
	const place = "\nWaiting: place 1 of 1 on one, two\n"
	genvtest.Eventually(t, "its place", func() bool { return strings.Contains(errs.String(), place) })
	for format, want := range map[string]string{"tui": "\n1 command waits for GPUs: operator for 2\n", "json": `,"waits":[{"id":"` + q.ids("one")[0] + `",`} {
		genvtest.Eventually(t, want, func() bool { return strings.Contains(genvtest.Exec(t, q.remote("gpus", "--format", format)).Out, want) })
	}
	proctest.Output(t, q.detach("two", "2,5"))
	require.NoError(t, cmd.Wait(), errs.String())
	require.Equal(t, "two 2,5\n", out.String())
	require.Contains(t, errs.String(), place)
	q.noOneWaits()

	activate := []string{"activate", "--gpus", "2", "--wait=12"}
	require.Equal(t, genvtest.Result{
		Err: "genv: your login shell is not set up on one, two: docs/using-gpus.md has the line for its rc file\n", Code: 1,
	}, genvtest.Exec(t, q.remote(activate...)), "it doesn't wait for a turn that would be lost")
	for _, host := range []string{"one", "two"} {
		profile := filepath.Join(q.fleet.Dir, "home", q.fleet.Host(host).User, ".profile")
		require.NoError(t, os.WriteFile(profile, []byte("genv() { :; }\n"), 0o644))
	}
	cmd, _, errs = q.begin(activate...)
	require.Error(t, cmd.Wait())
	require.Equal(t, 75, cmd.ProcessState.ExitCode(), errs.String())
	require.Contains(t, errs.String(), place)
	require.Contains(t, errs.String(), "it was not your turn within 12s")
}
