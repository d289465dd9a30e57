package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

const digested = `
timezone: Europe/Berlin
schedules: {office: [{days: mon-fri, hours: 8-18}]}
groups: {staff: [alice, bob]}
defaults: {max-devices-per-user: 2, max-memory-per-user: 80g}
overrides:
  - {users: ["@staff"], when: office, set: {idle: {after: 2h}}}
  - {hosts: [gpu-01, gpu-02], labels: {gpu: h100, rack: "1"}, set: {env-memory: false}}
exempt: {users: [carol, dave], processes: [Xorg, "ray*"]}
`

func TestDigestOfEqualPolicies(t *testing.T) {
	want := parse(t, digested).Digest()
	require.Len(t, want, 32)
	for name, text := range map[string]string{
		"comments and order": `# the same
exempt: {processes: ["ray*", Xorg], users: [dave, carol]}
timezone: Europe/Berlin
schedules: {day: [{days: mon-fri, hours: 8-18}]}
groups: {people: [bob, alice]}
defaults:
  max-memory-per-user: 80000m
  max-devices-per-user: 2
overrides:
  - {users: ["@people"], when: day, set: {idle: {after: 2h}}}
  - {hosts: [gpu-02, gpu-01], labels: {rack: "1", gpu: h100}, set: {env-memory: false}}
`,
		"hooks and messages": digested + "tell-users: false\n",
	} {
		require.Equal(t, want, parse(t, text).Digest(), name)
	}
	file := parse(t, digested)
	file.Flags.MaxDevices = policy.Value[int]{On: true, Value: 2, From: policy.Source{By: "--max-devices-per-user"}}
	require.Equal(t, want, file.Digest(), "a flag that says what the file says")
	require.Equal(t, policy.Default().Digest(), parse(t, "defaults: {env-devices: true}\n").Digest())
}

func TestDigestOfOtherPolicies(t *testing.T) {
	seen := map[string]string{parse(t, digested).Digest(): "the policy"}
	for _, more := range []string{
		"limits: {max-terminations: 5}\n", "unreachable: hold\n", "limits: {over-limit: throttle}\n",
	} {
		d := parse(t, digested+more).Digest()
		require.Empty(t, seen[d], more)
		seen[d] = more
	}
	for name, change := range map[string]func(*policy.File){
		"a flag": func(f *policy.File) {
			f.Flags.EnvMemory = policy.Value[bool]{From: policy.Source{By: "--no-env-memory"}}
		},
		"another cap": func(f *policy.File) { f.Defaults.MaxDevices.Value = 3 },
		"no cap":      func(f *policy.File) { f.Defaults.MaxDevices.On = false },
		"for a user": func(f *policy.File) {
			f.UserFlags = map[snapshot.Username]policy.Settings{"eve": {MaxDevices: policy.Value[int]{On: true, Value: 9, From: policy.Source{By: "--max-devices-for-user"}}}}
		},
		"another override":  func(f *policy.File) { f.Overrides[0].Set.Idle.Value.After = time.Hour },
		"one override less": func(f *policy.File) { f.Overrides = f.Overrides[1:] },
		"other users":       func(f *policy.File) { f.Overrides[0].Members = []string{"alice"} },
		"another label":     func(f *policy.File) { f.Overrides[1].Labels["rack"] = "2" },
		"at any time":       func(f *policy.File) { f.Overrides[0].When = nil },
		"no exemptions":     func(f *policy.File) { f.Exemptions = policy.Exemptions{} },
		"a daemon":          func(f *policy.File) { f.Unprotected = []string{"Xorg"} },
	} {
		file := parse(t, digested)
		change(file)
		d := file.Digest()
		require.Empty(t, seen[d], name)
		seen[d] = name
	}
}
