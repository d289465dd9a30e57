package user_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// named are two persons with accounts of these names, which the tests of this package have: see sshd.Private.
func (s *station) named() (first, second *account) {
	if system.Username(s.t.Context(), 60800) != "sshd" {
		s.t.Skip("the accounts are those of this machine")
	}
	return s.person("sshd", 60800), s.person("postgres", 60799)
}

// statusOf is the lines of `genv status` before the configuration.
func statusOf(s *terminal) string { return s.say("genv status | sed '/^$/,$d'").text }

// TestWhatIsAllowed: people read how many GPUs the policy allows them, and who takes more reads it at once;
// what isn't known isn't shown.
func TestWhatIsAllowed(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	serving := s.serve()
	root := service.Client{Path: s.path("root/run/host.sock")}
	two, four := 2, 4
	allow := func(a service.Allowance) {
		a.ForMS = time.Hour.Milliseconds()
		require.NoError(t, root.Allow(t.Context(), a))
	}
	alice, bob := s.named()
	hers, his := alice.open("bash"), bob.open("bash")
	const attached = "Attached GPUs 0, 1 (H100 80GB HBM3)\n"
	require.Equal(t, said{text: attached}, hers.sayAll("genv activate --id hers --gpus 2"))
	require.Equal(t, "Environment is active (hers)\nAttached to GPUs at indices 0,1\n", statusOf(hers), "no controller has said it")

	allow(service.Allowance{GPUs: &two, Users: map[snapshot.Username]*int{"postgres": &four}})
	require.Equal(t, "Environment is active (hers)\nAttached to GPUs at indices 0,1\n2 GPUs allowed on all hosts together, 2 attached on this one; those on other hosts count, too\n", statusOf(hers))
	require.Equal(t, "Attached GPUs 0, 1, 2 (H100 80GB HBM3)\n"+
		"Warning: you have 3 GPUs on this host, and the policy allows 2 on all hosts together, not counting exempt ones: give back 1 with genv detach --index N\n",
		hers.sayAll("genv attach --count 3").text)
	require.NotContains(t, hers.sayAll("genv attach --count 3").text, "policy", "nothing is new")
	require.Equal(t, "Attached GPUs 3, 4, 5, 6 (H100 80GB HBM3)\n", his.sayAll("genv activate --id his --gpus 4").text, "he may have 4")
	require.Equal(t, "Environment is active (his)\nAttached to GPUs at indices 3,4,5,6\n4 GPUs allowed on all hosts together, 4 attached on this one; those on other hosts count, too\n", statusOf(his))
	require.Equal(t, said{}, hers.say("genv detach --index 2"))

	box := notify.Box{Root: s.path("root")}
	require.NoError(t, box.Keep(60799, "It is another user's.", nil, time.Now()))
	require.NoError(t, box.Keep(60800, "It is old.", nil, time.Now().Add(-25*time.Hour)))
	require.NotContains(t, statusOf(hers), "notices")
	told := time.Now().UTC().Add(-23 * time.Hour)
	require.NoError(t, box.Keep(60800, "It is over the cap.", []string{"pts/3"}, told))
	require.Contains(t, statusOf(hers), "those on other hosts count, too\ngenv notices shows what you were told last at "+told.Format("15:04")+"\n")

	allow(service.Allowance{GPUs: &two, OneHost: true})
	require.Equal(t, "Environment is active (hers)\nAttached to GPUs at indices 0,1\n2 of 2 GPUs allowed\n", statusOf(hers))
	require.Equal(t, "Attached GPU 2 (H100 80GB HBM3)\n"+
		"Warning: you have 3 GPUs on this host, and the policy allows 2, not counting exempt ones: give back 1 with genv detach --index N\nran\n",
		hers.sayAll("(unset GENV_ENVIRONMENT_ID; genv run --gpus 1 echo ran)").text, "in another environment")

	allow(service.Allowance{OneHost: true})
	require.NotContains(t, statusOf(hers), "allowed", "there is no cap")
	require.Equal(t, "Attached GPUs 0, 1, 2 (H100 80GB HBM3)\n", hers.sayAll("genv attach --count 3").text)
	require.NoError(t, serving.Process.Signal(syscall.SIGTERM))
	require.NoError(t, serving.Wait())
	require.Equal(t, "Environment is active (hers)\nAttached to GPUs at indices 0,1,2\n", statusOf(hers), "without the service it is unknown")
}

// TestWhatOneMachineAllows: `genv enforce` has the service tell it, and a dry run doesn't.
func TestWhatOneMachineAllows(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	s.serve()
	require.NoError(t, os.WriteFile(s.path("policy.yaml"), []byte("defaults: {max-devices-per-user: 1, warn: {for: 1h}}\n"), 0o644))
	alice, _ := s.named()
	hers := alice.open("bash")
	require.Equal(t, said{}, hers.say("genv activate --id hers --gpus 1"))
	enforce := func(more ...string) func() {
		cmd := s.admin().command(append([]string{"genv", "enforce", "--interval", "100ms", "--policy", s.path("policy.yaml"), "--state-dir", s.path("admin")}, more...)...)
		require.NoError(t, cmd.Start())
		return func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }
	}
	dry := s.admin().run("genv", "enforce", "--interval", "100ms", "--cycles", "3", "--dry-run", "--policy", s.path("policy.yaml"))
	require.Zero(t, dry.Code, dry.Err)
	require.NotContains(t, statusOf(hers), "allowed")
	stop := enforce()
	defer stop()
	require.Eventually(t, func() bool {
		return statusOf(hers) == "Environment is active (hers)\nAttached to GPUs at indices 0\n1 of 1 GPU allowed\n"
	}, 30*time.Second, 50*time.Millisecond)
	require.Contains(t, hers.sayAll("genv attach --count 2").text, "Warning: you have 2 GPUs on this host, and the policy allows 1, ")
}

// TestCapsOfOneMachine: `genv enforce` knows its labels, the groups of hosts that it is in, and Unix groups.
func TestCapsOfOneMachine(t *testing.T) {
	t.Parallel()
	s := newStation(t)
	alice, _ := s.named()
	require.Equal(t, said{}, alice.open("bash").say("genv activate --id hers --gpus 1"))
	name, err := os.Hostname()
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(s.path("config"), 0o755))
	require.NoError(t, os.WriteFile(s.path("config/hosts.yaml"), []byte("hosts: ["+name+", other]\ngroups: {big: ["+name+"], small: [other]}\n"), 0o644))
	for caps, want := range map[string]string{
		`{name: c, gpus: 0, of: {labels: {use: train}}}`:                           "c: 1 of 0 GPUs",
		`{name: c, gpus: 0, of: {labels: {use: test}}}`:                            "",
		`{name: c, gpus: 0, of: {hosts: ["@big"]}}`:                                "c: 1 of 0 GPUs",
		`{name: c, gpus: 0, of: {hosts: ["@small"]}}`:                              "",
		`{name: c, gpus: 0, of: {hosts: ["*", "!@big"]}}`:                          "",
		`{name: c, gpus: 0, of: {hosts: [` + name + `]}}`:                          "c: 1 of 0 GPUs",
		`{name: c, gpus: 0, of: {hosts: ["@bag"]}}`:                                `@bag: no such group of hosts in the inventory; did you mean "big"?`,
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
