package user_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/cmd/genv/user"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// Twenty jobs of one user and twenty of another wait on a host of eight GPUs. None of them shares a GPU or is forgotten,
// the two take turns, and both can detach meanwhile, also when the service is started again, or killed.
func TestManyPeopleWait(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	served := s.serve()
	alice, bob := s.person("alice", 4242), s.person("bob", 4243)
	shells := []*terminal{alice.open("bash"), bob.open("bash")}
	for _, shell := range shells {
		require.Equal(t, said{}, shell.say("genv activate --gpus 4"))
	}
	require.NoError(t, os.Mkdir(s.path("jobs"), 0o755))
	require.NoError(t, os.Chmod(s.path("jobs"), 0o777)) //nolint:gosec // both write there
	job := `cd $1; for gpu in $(echo $CUDA_VISIBLE_DEVICES | tr , " "); do mkdir $gpu || echo shared >>log; done; ` +
		`echo $2 >>log; chmod 666 log; sleep 0.5; for gpu in $(echo $CUDA_VISIBLE_DEVICES | tr , " "); do rmdir $gpu; done`
	results := make(chan genvtest.Result, 40)
	for i := range 40 {
		who, name := alice, "alice"
		if i >= 20 {
			who, name = bob, "bob"
		}
		go func() {
			results <- genvtest.Exec(t, who.command("genv", "run", "--wait", "--gpus", []string{"1", "2"}[i%2], "sh", "-c", job, "job", s.path("jobs"), name))
		}()
	}
	stop := func(by syscall.Signal) {
		require.NoError(t, served.Process.Signal(by))
		_ = served.Wait()
		_ = os.Remove(s.path("root/run/host.sock")) // it may have gone with the service
		served = s.serve()
	}
	time.Sleep(3 * time.Second)
	stop(syscall.SIGTERM)
	for _, shell := range shells {
		require.Equal(t, said{}, shell.say("genv detach"))
		stop(syscall.SIGKILL)
	}
	for range 40 {
		r := <-results
		require.Zero(t, r.Code, r)
	}
	log, err := os.ReadFile(s.path("jobs/log"))
	require.NoError(t, err)
	lines := strings.Fields(string(log))
	require.Len(t, lines, 40, "%v", lines)
	ahead := map[string]int{}
	for at, line := range lines[:34] {
		require.NotEqual(t, "shared", line, lines)
		ahead[line]++
		require.LessOrEqual(t, max(ahead["alice"]-ahead["bob"], ahead["bob"]-ahead["alice"]), 8, "after %d: %v", at, lines)
	}
	require.Equal(t, noEnvironments, strings.Join(strings.SplitAfter(alice.environments(), "\n")[:1], ""))
}

func TestWait(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.serve()
	s.devices(2)
	alice, bob := s.person("alice", 4242), s.person("bob", 4243)
	shell := alice.open("bash")
	require.Equal(t, said{text: "Attached GPUs 0, 1 (H100 80GB HBM3)\n"}, shell.sayAll("genv activate --gpus 2 --wait"))
	r := bob.run("genv", "run", "--wait=1", "--gpus", "1", "true")
	require.Equal(t, genvtest.Result{Code: 75, Err: "Waiting: you come first: 0 of 1 GPU free\ngenv: it was not your turn within 1s: nothing was attached\n"}, r)
	noted := func(n int) {
		require.Eventually(t, func() bool { return len(service.Waits(s.path("root/run"), alive)) == n }, 20*time.Second, 20*time.Millisecond)
	}
	noted(0)
	waits := bob.command("genv", "run", "--wait", "--gpus", "1", "true")
	require.NoError(t, waits.Start())
	noted(1)
	require.Contains(t, alice.run("genv", "gpus").Out, "\n1 command waits for GPUs: uid 4243 for 1\n")
	require.NoError(t, waits.Process.Signal(syscall.SIGINT))
	require.Error(t, waits.Wait())
	noted(0)

	for _, row := range [][2]string{
		{"genv run --wait true", "--wait: say for how many GPUs, as with --gpus 2"},
		{"genv run --wait=no --gpus 1 true", "wait"},
		{"genv run --wait --gpus 3 true", "Requested more devices (3) than total available (2)"},
		{"genv run -o --wait --gpus 1 true", "leave out --over-subscribe"},
	} {
		r := bob.run(strings.Fields(row[0])...)
		require.Equal(t, 1, r.Code, row)
		require.Contains(t, r.Err, row[1])
	}
	job := bob.command("genv", "run", "-q", "--wait", "--gpus", "1", "true")
	require.NoError(t, job.Start())
	noted(1)
	require.Regexp(t, "GPUs? (0,)?1 (is|are) kept for people who wait", shell.sayAll("genv detach --index 1; genv attach --count 2").text)
	require.NoError(t, job.Wait())
}

func alive(snapshot.PID, snapshot.StartTime) bool { return true }

// On a host without root's service, --wait looks from time to time.
func TestWaitWithoutAQueue(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.devices(1)
	u := s.me()
	holder := u.command("genv", "run", "--gpus", "1", "sleep", "1000")
	require.NoError(t, holder.Start())
	require.Eventually(t, func() bool { return u.environments() != noEnvironments }, 20*time.Second, 50*time.Millisecond)
	r := u.run("genv", "run", "--wait=1", "--gpus", "1", "true")
	require.Equal(t, 75, r.Code)
	require.Contains(t, r.Err, "Waiting: too few GPUs are free. This host keeps no queue, so no place is kept: it is looked at every 10 s\n")
	require.NoError(t, holder.Process.Signal(syscall.SIGTERM))
	_ = holder.Wait()
	require.Equal(t, genvtest.Result{Out: "0\n"}, u.run("genv", "run", "-q", "--wait", "--gpus", "1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"))
}

func TestPlaceText(t *testing.T) {
	name := snapshot.Wait{Username: "bob", GPUs: 2, Seconds: 720}
	for want, place := range map[string]service.Place{
		"3rd of 4 people: bob waits for 2 GPUs since 12 minutes; 2 of your own are before this one": {Number: 3, People: 4, First: &name, Own: 2},
		"you come first: 1 of 2 GPUs free":                                         {Number: 1, People: 1, GPUs: 2, Free: 1},
		"1st of 2 people: 1 of 2 GPUs free; 1 of your own is before this one":      {Number: 1, People: 2, GPUs: 2, Free: 1, Own: 1},
		"you come first: 0 of 2 GPUs free; you could have 1 here: ask for as many": {Number: 1, People: 1, GPUs: 2, Possible: new(1)},
		"you come first: 0 of 2 GPUs free; others need not give back any for it":   {Number: 1, People: 1, GPUs: 2, Possible: new(0)},
	} {
		require.Equal(t, want, user.PlaceText(&place))
	}
}
