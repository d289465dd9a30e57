package user_test

import (
	"math"
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

// TestWhatIsAllowed: people read what their caps allow and count, and nothing beyond is attached; what isn't known isn't
// shown, and refuses nothing.
func TestWhatIsAllowed(t *testing.T) {
	t.Parallel()
	s := newStation(t)
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
	require.Equal(t, said{text: "Attached GPUs 0, 1 (H100 80GB HBM3)\n"}, hers.sayAll("genv activate --id hers --gpus 2"))
	require.Equal(t, active+attached, statusOf(hers), "no controller has said it")

	allow(service.CapUse{Limit: 3, Here: 2, GPUs: all[:2], Elsewhere: 1, Hosts: []snapshot.Hostname{"gpu-03"}, SeenMS: 4000}, service.CapUse{Limit: 4})
	require.Equal(t, active+attached+"3 of 3 GPUs\n", statusOf(hers))
	require.Equal(t, "Environment is not active\n0 of 4 GPUs\n", statusOf(his))
	for _, look := range []string{"gpus", "wait"} {
		elsewhere := hers.sayAll("genv remote " + look)
		require.Equal(t, "1", elsewhere.status)
		require.Regexp(t, "^genv: no hosts are selected; .*; https://gpus.example.org shows all hosts; questions: room 1.23\n$", elsewhere.text)
	}
	refused := hers.sayAll("genv attach --count 3")
	require.Equal(t, "1", refused.status)
	require.Regexp(t, "^beyond a cap of the policy: max-devices-per-user allows you 3 GPUs, and with this it would be 4 GPUs: you have 2 GPUs on this host "+
		"\\(GPU 0,1\\) and 1 GPU on gpu-03, as seen \\d+s ago. Give back what you need less: genv detach --index 1 in its shell.\n$", refused.text)
	require.Equal(t, active+attached+"3 of 3 GPUs\n", statusOf(hers), "nothing changed")
	require.Equal(t, "1", hers.sayAll("genv devices attach --index 5").status)
	refused = hers.sayAll("(unset GENV_ENVIRONMENT_ID; genv run --gpus 1 echo ran)")
	require.NotContains(t, refused.text, "ran\n")
	require.Contains(t, refused.text, "with this it would be 4 GPUs")
	require.Empty(t, hers.sayAll("genv attach --count 2").status, "nothing more is asked for")
	require.Equal(t, "Attached GPUs 2, 3, 4, 5 (H100 80GB HBM3)\n", his.sayAll("genv activate --id his --gpus 4").text, "he may have 4")
	require.Equal(t, said{}, his.say("genv deactivate"))
	entered := his.sayAll("genv activate --id his --gpus 5")
	require.Regexp(t, "^No GPU was attached: beyond a cap of the policy: .* would be 5 GPUs", entered.text)
	require.Empty(t, entered.status)
	require.Equal(t, "Environment is active (his)\nDetached from GPUs\n0 of 4 GPUs\n", statusOf(his))

	box := notify.Box{Root: s.path("root")}
	require.NoError(t, box.Keep(60799, "It is another user's.", nil, time.Now()))
	require.NoError(t, box.Keep(60800, "It is old.", nil, time.Now().Add(-25*time.Hour)))
	require.NotContains(t, statusOf(hers), "notices")
	told := time.Now().UTC().Add(-23 * time.Hour)
	require.NoError(t, box.Keep(60800, "It is over the cap.", []string{"pts/3"}, told))
	require.Contains(t, statusOf(hers), "3 of 3 GPUs\ngenv notices shows what you were told last at "+told.Format("15:04")+"\n")

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
	t.Parallel()
	s := newStation(t)
	s.serve()
	require.NoError(t, os.WriteFile(s.path("policy.yaml"), []byte("defaults: {warn: {for: 1h}}\ncaps: [{name: lab, gpus: 2}]\n"), 0o644))
	alice, bob := s.named()
	hers, his := alice.open("bash"), bob.open("bash")
	require.Equal(t, said{}, hers.say("genv activate --id hers --gpus 1"))
	dry := s.admin().run("genv", "enforce", "--interval", "100ms", "--cycles", "3", "--dry-run", "--policy", s.path("policy.yaml"))
	require.Zero(t, dry.Code, dry.Err)
	require.NotContains(t, statusOf(hers), " of ")
	cmd := s.admin().command("genv", "enforce", "--interval", "1h", "--policy", s.path("policy.yaml"), "--state-dir", s.path("admin"))
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Signal(syscall.SIGTERM); _ = cmd.Wait() }()
	require.Eventually(t, func() bool {
		return statusOf(hers) == "Environment is active (hers)\nAttached to GPUs at indices 0\n1 of 2 GPUs (lab)\n"
	}, 30*time.Second, 50*time.Millisecond)
	require.Contains(t, hers.sayAll("genv attach --count 3").text, "cap lab allows you 2 GPUs, and with this it would be 3 GPUs: you have 1 GPU on this host (GPU 0). ")
	require.Equal(t, said{}, hers.say("genv attach --count 2"))
	require.Equal(t, said{}, hers.say("genv detach --index 0"))
	require.Equal(t, said{}, hers.say("genv attach --index 3"), "the controller looks again, and sees that GPU 0 was given back")
	require.Contains(t, his.sayAll("genv run --gpus 3 true").text, "cap lab allows you 2 GPUs", "who has nothing here is known as soon as he asks")
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
