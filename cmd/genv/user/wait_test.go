package user_test

import (
	"bufio"
	"math"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/genvtest"
	"github.com/seed-3119e985/genv/cmd/genv/user"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// Twenty jobs of one user and twenty of another wait on a host of eight GPUs. None of them shares a GPU or is forgotten,
// the two take turns, and both can detach meanwhile, also when the service is started again, or killed.
func TestManyPeopleWait(t *testing.T) {
	s := parallelStation(t)
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
	require.Eventually(t, func() bool { return len(service.Waits(s.path("root/run"), alive)) == 40 }, time.Minute, 20*time.Millisecond)
	time.Sleep(time.Second) // each was told its place
	stop(syscall.SIGTERM)
	for _, shell := range shells {
		require.Equal(t, said{}, shell.say("genv detach"))
		stop(syscall.SIGKILL)
	}
	for range 40 {
		r := <-results
		require.Zero(t, r.Code, r)
	}
	lines := strings.Fields(proctest.ReadText(t, s.path("jobs/log")))
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
	s := parallelStation(t)
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
		{"genv run --wait --gpus 1 --gpu-memory 90g true", "No GPU of this host has 90g of memory"},
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
	require.NoError(t, job.Process.Signal(syscall.SIGSTOP)) // it would soon end
	require.Regexp(t, `GPUs? (0,)?1 (is|are) kept for people who wait|GPU 1: environment \d+ of uid 4243 has it`,
		shell.sayAll("genv detach --index 1; genv attach --count 2").text)
	require.NoError(t, job.Process.Signal(syscall.SIGCONT))
	require.NoError(t, job.Wait())
}

func alive(snapshot.PID, snapshot.StartTime) bool { return true }

// On a host without root's service, --wait looks from time to time.
func TestWaitWithoutAQueue(t *testing.T) {
	s := parallelStation(t)
	s.devices(1)
	u := s.me()
	holder := u.command("genv", "run", "--gpus", "1", "sleep", "1000")
	require.NoError(t, holder.Start())
	require.Eventually(t, func() bool { return u.environments() != noEnvironments }, 20*time.Second, 50*time.Millisecond)
	r := u.run("genv", "run", "--wait=1", "--gpus", "1", "true").Exits(t, 75)
	require.Contains(t, r.Err, "Waiting: too few GPUs are free. This host keeps no queue, and is looked at every 10 s\n")
	require.Contains(t, u.run("genv", "run", "--wait", "--gpus", "1", "--gpu-memory", "90g", "true").Err, "No GPU of this host has 90g of memory")
	require.NoError(t, holder.Process.Signal(syscall.SIGTERM))
	_ = holder.Wait()
	require.Equal(t, genvtest.Result{Out: "0\n"}, u.run("genv", "run", "-q", "--wait", "--gpus", "1", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES"))
}

// TestUsageWait is a wait of another machine: what it is offered is kept when it ends, unless it says that it isn't wanted.
func TestUsageWait(t *testing.T) {
	s := parallelStation(t)
	s.serve()
	s.devices(2)
	bob := s.person("bob", 4243)
	holder := bob.open("bash")
	require.Equal(t, said{}, holder.say("genv activate --gpus 2"))
	for i, last := range []string{"withdraw\n", ""} {
		waits := s.person([]string{"alice", "carol"}[i], 4244+i).command("genv", "usage", "wait", "--gpus", "1", "--id", "x")
		in, out := proctest.StartPiped(t, waits)
		lines := bufio.NewScanner(out)
		require.True(t, lines.Scan())
		require.Equal(t, `{"place":1,"people":1,"gpus":1,"free":0}`, lines.Text())
		require.Equal(t, said{}, holder.say("genv detach --index 1"))
		require.True(t, lines.Scan())
		require.Contains(t, lines.Text(), `"offered":[1]`)
		proctest.Try(in.Write([]byte(last))).OK(t)
		require.NoError(t, in.Close())
		require.False(t, lines.Scan())
		require.NoError(t, waits.Wait())
		attached := func() bool { return holder.sayAll("genv attach --index 1").status == "" }
		if last != "" {
			require.Eventually(t, attached, 20*time.Second, 100*time.Millisecond)
			continue
		}
		for range 10 { // not require.Never: its last look may meet a shell that has ended
			require.False(t, attached())
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func TestPlaceText(t *testing.T) {
	for want, place := range map[string]service.QueuePlace{
		"3rd of 4 people: bob waits for 2 GPUs since 12 minutes; 2 of your own are before this one": {Number: 3, People: 4, First: &snapshot.Wait{Username: "bob", GPUs: 2, Seconds: 720}, Own: 2},
		"you come first: 1 of 2 GPUs free":                                                               {Number: 1, People: 1, GPUs: 2, Free: 1},
		"1st of 2 people: 1 of 2 GPUs free; 1 of your own is before this one":                            {Number: 1, People: 2, GPUs: 2, Free: 1, Own: 1},
		"you come first: 0 of 2 GPUs free; you could have 1 here: ask for as many":                       {Number: 1, People: 1, GPUs: 2, Possible: new(1)},
		"2nd of 2 people: bob waits for 2 GPUs since just now":                                           {Number: 2, People: 2, First: &snapshot.Wait{Username: "bob", GPUs: 2}},
		"you come first: 0 of 2 GPUs free; GPUs 0,3 are taken back for you":                              {Number: 1, People: 1, GPUs: 2, Freed: []snapshot.DeviceIndex{0, 3}},
		"you come first: 1 of 1 GPU free; others may pass you, since cap lab allows no more than 2 GPUs": {Number: 1, People: 1, GPUs: 1, Free: 1, Barred: "cap lab allows no more than 2 GPUs"},
		"you come first: 0 of 2 GPUs free; nobody is asked to give GPUs back for it":                     {Number: 1, People: 1, GPUs: 2, Possible: new(0)},
	} {
		require.Equal(t, want, user.PlaceText(&place))
	}
}

// named are two persons with accounts of these names, which the tests of this package have: see sshd.Private. Each test
// has other ids of environments, since a service reads the claims of all processes of an account.
func (s *station) named() (first, second *account) {
	if system.Username(s.t.Context(), 60800) != "sshd" {
		s.t.Skip("the accounts are those of this machine")
	}
	return s.person("sshd", 60800), s.person("postgres", 60799)
}

// statusOf is the lines of `genv status` before the configuration.
func statusOf(s *terminal) string { return s.say("genv status | sed '/^$/,$d'").text }

// TestWhatIsAllowed: people read what their caps allow and count, and nothing beyond is attached; what isn't known isn't
// shown, and refuses nothing.
func TestWhatIsAllowed(t *testing.T) {
	s := parallelStation(t)
	serving := s.serve()
	root := service.Client{Path: s.path("root/run/host.sock")}
	alice, bob := s.named()
	all := []snapshot.DeviceIndex{0, 1, 2, 3, 4, 5, 6, 7}
	allow := func(hers, his service.CapUse) {
		require.NoError(t, root.Allow(t.Context(), service.Allowance{
			Caps:   []service.Cap{{Rule: "max-devices-per-user", Counts: "gpus", GPUs: all}},
			People: map[snapshot.UID]service.Person{60800: {Caps: []service.CapUse{hers}}, 60799: {Caps: []service.CapUse{his}}},
			Asked:  math.MaxUint64, ForMS: time.Hour.Milliseconds(), Contact: "room 1.23", Page: "https://gpus.example.org",
		}))
	}
	hers, his := alice.open("bash"), bob.open("bash")
	const active, attached = "Environment is active (hers)\n", "Attached to GPUs at indices 0,1\n"
	require.Equal(t, said{text: "Attached GPUs 0, 1 (H100 80GB HBM3)\n"}, hers.sayAll("genv activate --id hers --gpus 2").withoutDelay())
	require.Equal(t, active+attached, statusOf(hers), "no controller has said it")

	allow(service.CapUse{Limit: 3, Here: 2, GPUs: all[:2], Elsewhere: 1, Hosts: []snapshot.Hostname{"gpu-03"}, SeenMS: 4000}, service.CapUse{Limit: 4})
	require.Equal(t, active+attached+"3 of 3 GPUs\n", statusOf(hers))
	require.Equal(t, "Environment is not active\n0 of 4 GPUs\n", statusOf(his))
	for _, look := range []string{"gpus", "wait"} {
		elsewhere := hers.sayAll("genv remote " + look)
		require.Equal(t, "1", elsewhere.status)
		require.Regexp(t, "^genv: no hosts are selected; .*; https://gpus.example.org shows all hosts; questions: room 1.23\n$", elsewhere.text)
	}
	refused := hers.sayAll("genv attach --count 3").withoutDelay()
	require.Equal(t, "1", refused.status)
	require.Regexp(t, "^beyond a cap of the policy: max-devices-per-user allows you 3 GPUs, and with this it would be 4 GPUs: you have 2 GPUs on this host "+
		"\\(GPU 0,1\\) and 1 GPU on gpu-03, as seen \\d+[sm] ago. Give back what you need less: genv detach --index 1 in its shell, or end its command.\n$", refused.text)
	require.Equal(t, active+attached+"3 of 3 GPUs\n", statusOf(hers), "nothing changed")
	require.Equal(t, "1", hers.sayAll("genv devices attach --index 5").status)
	refused = hers.sayAll("(unset GENV_ENVIRONMENT_ID; genv run --gpus 1 echo ran)")
	require.NotContains(t, refused.text, "ran\n")
	require.Contains(t, refused.text, "with this it would be 4 GPUs")
	require.Empty(t, hers.sayAll("genv attach --count 2").withoutDelay().status, "nothing more is asked for")
	require.Equal(t, "Attached GPUs 2, 3, 4, 5 (H100 80GB HBM3)\n", his.sayAll("genv activate --id his --gpus 4").withoutDelay().text, "he may have 4")
	require.Equal(t, said{}, his.say("genv deactivate").withoutDelay())
	entered := his.sayAll("genv activate --id his --gpus 5").withoutDelay()
	require.Regexp(t, "^No GPU was attached: beyond a cap of the policy: .* would be 5 GPUs", entered.text)
	require.Empty(t, entered.status)
	require.Equal(t, "Environment is active (his)\nDetached from GPUs\n0 of 4 GPUs\n", statusOf(his))

	box := notify.Box{Root: s.path("root")}
	require.NoError(t, box.Keep(60799, "It is another user's.", nil, time.Now()))
	require.NoError(t, box.Keep(60800, "It is old.", nil, time.Now().Add(-25*time.Hour)))
	require.NotContains(t, statusOf(hers), "notices")
	told := time.Now().UTC().Add(-23 * time.Hour)
	require.NoError(t, box.Keep(60800, "It is over the cap.", []string{"pts/3"}, told))
	require.Contains(t, statusOf(hers), "3 of 3 GPUs\nYour last message came at "+told.Format("15:04")+": genv notices shows it\n")

	require.Contains(t, hers.sayAll("genv policy explain").text, "cap max-devices-per-user  3 of 3 GPUs")
	require.NoError(t, root.Allow(t.Context(), service.Allowance{
		Caps: []service.Cap{{Name: "lab"}}, Asked: math.MaxUint64, ForMS: time.Hour.Milliseconds(),
	}))
	require.Contains(t, statusOf(hers), "your caps are unknown yet: try again in a minute\n")
	require.Contains(t, hers.sayAll("genv policy explain").text, "your caps are unknown yet: try again in a minute\n")
	require.NoError(t, root.Allow(t.Context(), service.Allowance{By: "genv remote enforce (root on jump)"}))
	unknown := hers.sayAll("genv policy explain")
	require.Contains(t, unknown.text, "genv remote enforce (root on jump) enforces a policy on this host, and has not said since ")
	require.NotEmpty(t, unknown.status, "and no value of another policy is shown")
	require.Contains(t, hers.sayAll("genv policy explain --policy none").text, "max-devices-per-user")

	require.NoError(t, serving.Process.Signal(syscall.SIGTERM))
	require.NoError(t, serving.Wait())
	require.Equal(t, active+attached, statusOf(hers), "without the service it is unknown")
}

// TestWhatOneMachineAllows: `genv enforce` has the service told, which asks it before it refuses. A dry run tells nothing.
func TestWhatOneMachineAllows(t *testing.T) {
	s := parallelStation(t)
	s.serve()
	require.NoError(t, os.WriteFile(s.path("policy.yaml"), []byte("defaults: {warn: {for: 1h}}\ncaps: [{name: lab, gpus: 2}]\n"), 0o644))
	alice, bob := s.named()
	hers, his := alice.open("bash"), bob.open("bash")
	require.Equal(t, said{}, hers.say("genv activate --id told --gpus 1"))
	dry := s.admin().run("genv", "enforce", "--interval", "100ms", "--cycles", "3", "--dry-run", "--policy", s.path("policy.yaml"))
	require.Zero(t, dry.Code, dry.Err)
	require.NotContains(t, statusOf(hers), " of ")
	cmd := s.admin().command("genv", "enforce", "--interval", "1h", "--policy", s.path("policy.yaml"), "--state-dir", s.path("admin"))
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }()
	require.Eventually(t, func() bool {
		return statusOf(hers) == "Environment is active (told)\nAttached to GPUs at indices 0\n1 of 2 GPUs (lab)\n"
	}, 30*time.Second, 50*time.Millisecond)
	require.Contains(t, hers.sayAll("genv attach --count 3").text, "cap lab allows you 2 GPUs, and with this it would be 3 GPUs: you have 1 GPU on this host (GPU 0). ")
	require.Equal(t, said{}, hers.say("genv attach --count 2"))
	require.Equal(t, said{}, hers.say("genv detach --index 0"))
	require.Equal(t, said{}, hers.say("genv attach --index 3"), "the controller looks again, and sees that GPU 0 was given back")
	require.Contains(t, his.sayAll("genv run --gpus 3 true").text, "cap lab allows you 2 GPUs", "who has nothing here is known as soon as he asks")
}

// TestCapsOfOneMachine: `genv enforce` knows its labels, the groups of hosts that it is in, and Unix groups.
func TestCapsOfOneMachine(t *testing.T) {
	s := parallelStation(t)
	alice, _ := s.named()
	require.Equal(t, said{}, alice.open("bash").say("genv activate --id capped --gpus 1"))
	name := proctest.Try(os.Hostname()).OK(t)
	require.NoError(t, os.Mkdir(s.path("config"), 0o755))
	require.NoError(t, os.WriteFile(s.path("config/hosts.yaml"), []byte("hosts: ["+name+", other]\ngroups: {big: ["+name+"], small: [other]}\n"), 0o644))
	for caps, want := range map[string]string{
		`{name: c, gpus: 0, of: {labels: {use: train}}}`:                           "c: 1 of 0 GPUs",
		`{name: c, gpus: 0, of: {labels: {use: test}}}`:                            "",
		`{name: c, gpus: 0, of: {hosts: ["@big"]}}`:                                "c: 1 of 0 GPUs",
		`{name: c, gpus: 0, of: {hosts: ["@small"]}}`:                              "",
		`{name: c, gpus: 0, of: {hosts: ["*", "!@big"]}}`:                          "",
		`{name: c, gpus: 0, of: {hosts: [` + name + `]}}`:                          "c: 1 of 0 GPUs",
		`{name: c, gpus: 0, of: {hosts: ["@bag"]}}`:                                `@bag: no such host group in the inventory; did you mean "big"?`,
		`{name: c, gpus: 0, users: ["%sshd"]}`:                                     "c: 1 of 0 GPUs",
		`{name: c, gpus: 0, users: ["!%sshd"]}`:                                    "",
		`{name: c, gpus: 1, together: true, of: {model: "h100*"}}`:                 "",
		`{name: c, gpus: 0, together: true, of: {model: "h100*"}}`:                 "c: 1 of 0 GPUs",
		`{name: c, gpus: 0, together: true, of: {model: "a100*"}}`:                 "",
		`{name: c, gpus: 0, when: never}`:                                          "there are no schedules",
		`{name: c, gpus: 0, per: host, users: [sshd], of: {labels: {use: train}}}`: "c: 1 of 0 GPUs",
	} {
		require.NoError(t, os.WriteFile(s.path("config/policy.yaml"), []byte("caps: ["+caps+"]\n"), 0o644))
		r := s.admin().with("GENV_CONFIG_DIR="+s.path("config"), "GENV_AUDIT_LOG=off").run("genv", "enforce", "--interval", "0", "--dry-run", "--by", "user", "--label", "use=train")
		require.Contains(t, r.Out+r.Err, want, caps)
		require.Equal(t, want != "", r.Out != "" || r.Code != 0, "%s: %s", caps, r.Out+r.Err)
	}
	r := s.admin().run("genv", "enforce", "--interval", "0", "--dry-run", "--label", "train")
	require.Contains(t, r.Err, `--label "train": write KEY=VALUE, such as use=train`)
}
