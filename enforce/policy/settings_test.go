package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

const guardPolicy = `
timezone: Europe/Berlin
schedules: {office: [{days: mon-fri, hours: 9-17}]}
defaults: {guard: watch}
overrides:
  - {hosts: [gpu-02], set: {guard: enforce}}
  - {hosts: [gpu-03], set: {guard: off}}
  - {hosts: [gpu-04], set: {guard: false}}
  - {labels: {gpu: h100}, when: office, set: {guard: enforce}}
exempt:
  users: [zoe, alice]
  uids: [5000, 42]
`

func TestGuardOfAHost(t *testing.T) {
	f := parse(t, guardPolicy)
	noon := time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC) // a Monday
	night := noon.Add(12 * time.Hour)
	for _, c := range []struct {
		host   snapshot.Hostname
		labels map[string]string
		at     time.Time
		want   guard.Mode
	}{
		{host: "gpu-01", at: noon, want: guard.Watch},
		{host: "gpu-02", at: noon, want: guard.Enforce},
		{host: "gpu-03", at: noon, want: guard.Off},
		{host: "gpu-04", at: noon, want: guard.Off},
		{host: "gpu-05", labels: map[string]string{"gpu": "h100"}, at: noon, want: guard.Enforce},
		{host: "gpu-05", labels: map[string]string{"gpu": "h100"}, at: night, want: guard.Watch},
	} {
		want := guard.PolicySetting{}
		if c.want != guard.Off {
			want = guard.PolicySetting{Mode: c.want, ExemptUsers: []snapshot.Username{"alice", "zoe"}, ExemptUIDs: []snapshot.UID{42, 5000}}
		}
		q := enforce.Query{Host: c.host, Labels: c.labels, At: c.at}
		require.Equal(t, want, f.Settings(q).Guard, "%s %v", c.host, c.at)
		q.User = "bob"
		require.Zero(t, f.Settings(q).Guard, "it is a host's")
	}
	require.Zero(t, policy.Default().Settings(enforce.Query{Host: "gpu-01", At: noon}).Guard)
}

func TestErrorsOfTheGuardKey(t *testing.T) {
	refused(t, []bad{
		{"", "defaults: {guard: on}", `unknown value "on"; use one of off, watch, enforce`},
		{"", "defaults: {guard: enforec}", `did you mean "enforce"?`},
		{"", "defaults: {guard: true}", "guard: true does not say how; write watch or enforce, or false for none"},
		{"", "overrides: [{users: [bob], set: {guard: watch}}]", "guard cannot differ by user; select hosts, or put the users under `exempt:`"},
	})
}

func TestGuardAndExemptionsOfOperators(t *testing.T) {
	f := parse(t, guardPolicy)
	now := time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC)
	list := policy.ExemptionList{}
	for _, who := range []policy.Who{
		{User: "bob"}, {User: "carol", Host: "gpu-02"}, {User: "dave", Rule: enforce.RuleIdle}, {Host: "gpu-05"}, {Host: "gpu-06", Rule: enforce.RuleIdle},
	} {
		list = append(list, policy.Exemption{Who: who, By: "op", Reason: "test", Created: now.Add(-time.Hour), Until: now.Add(time.Hour)})
	}
	p := policy.WithExemptions(f, list, now)
	guardOf := func(host snapshot.Hostname) guard.PolicySetting {
		return p.Settings(enforce.Query{Host: host, At: now}).Guard
	}
	uids := []snapshot.UID{42, 5000}
	require.Equal(t, guard.PolicySetting{Mode: guard.Watch, ExemptUsers: []snapshot.Username{"alice", "zoe", "bob"}, ExemptUIDs: uids}, guardOf("gpu-01"))
	require.Equal(t, guard.PolicySetting{Mode: guard.Enforce, ExemptUsers: []snapshot.Username{"alice", "zoe", "bob", "carol"}, ExemptUIDs: uids}, guardOf("gpu-02"))
	require.Zero(t, guardOf("gpu-03"), "off stays off")
	require.Zero(t, guardOf("gpu-05"), "the host is exempt")
	require.Equal(t, guard.Watch, guardOf("gpu-06").Mode, "exempt from one rule is not exempt from the guard")
	require.Equal(t, guard.Watch, policy.WithExemptions(f, list, now.Add(2*time.Hour)).Settings(enforce.Query{Host: "gpu-05", At: now}).Guard.Mode)
}

// Keys of an earlier version are named, whatever their value, and the rest of the file applies.
func TestIgnoredKeys(t *testing.T) {
	const ignoredKey = " is ignored, and the next version refuses it: remove it, and "
	instead := map[string]string{
		"{host: h, eid: 5}":    "write {user: bob, name: train}: any user may ask for an id that is free",
		"command":              "use `template:` or `addresses:`",
		"extend":               "use overrides with a schedule, or genv remote exempt --for",
		"format":               "use `slack:` to write to a chat",
		"templates":            "use `contact:` to say who to ask, or a hook for texts of your own",
		"fair-share":           "use overrides with a schedule, or genv remote exempt --for",
		"max-percent":          "use max-terminations, a number",
		"max-percent-per-host": "use max-terminations-per-host, a number",
	}
	type ignored struct{ key, place string }
	for _, row := range []struct {
		text string
		want []ignored
	}{
		{"defaults: {max-devices-per-user: 1}\n", nil},
		{"defaults: {max-devices-per-user: 1, extend: 1d}\n", []ignored{{"extend", "p.yaml:1:45"}}},
		{"defaults: {max-devices-per-user: 1, extend: [x]}\n", []ignored{{"extend", "p.yaml:1:45"}}},
		{"defaults: {max-devices-per-user: 1}\nfair-share: {boost: 2, free: 25%}\n", []ignored{{"fair-share", "p.yaml:2:14"}}},
		{"defaults: {max-devices-per-user: 1}\nfair-share: false\noverrides: [{users: [eve], set: {extend: 2h}}]\n", []ignored{{"fair-share", "p.yaml:2:13"}, {"extend", "p.yaml:3:42"}}},
		{"defaults: {max-devices-per-user: 1}\nmail: {sendmail: /x, from: a@b.org, command: [/x]}\n", []ignored{{"command", "p.yaml:2:46"}}},
		{"defaults: {max-devices-per-user: 1}\nhooks: [{command: [/bin/x], format: slack}, {webhook: 'https://x', format: [x]}]\n", []ignored{{"format", "p.yaml:2:37"}, {"format", "p.yaml:2:76"}}},
		{"defaults: {max-devices-per-user: 1}\ntemplates: {slack: '{{nope'}\n", []ignored{{"templates", "p.yaml:2:13"}}},
		{"defaults: {max-devices-per-user: 1}\ntemplates:\n  mail-body: |\n    {{.User}\n\n  terminal: >\n    x\n", []ignored{{"templates", "p.yaml:3:3"}}},
		{"defaults: {max-devices-per-user: 1}\nexempt:\n  environments: [{user: dave, name: train}, {host: h, eid: 5}]\n", []ignored{{"{host: h, eid: 5}", "p.yaml:3:46"}}},
		{"defaults: {max-devices-per-user: 1}\nlimits: {max-percent: 50, max-percent-per-host: x}\n", []ignored{{"max-percent", "p.yaml:2:23"}, {"max-percent-per-host", "p.yaml:2:49"}}},
	} {
		require.NoError(t, policy.Check("p.yaml", []byte(row.text)), row.text)
		file := parse(t, row.text)
		var got []ignored
		for _, i := range file.Ignored {
			require.Equal(t, i.Name+ignoredKey+instead[i.Name], i.Message)
			got = append(got, ignored{i.Name, i.Place.String()})
		}
		require.Equal(t, row.want, got, row.text)
		require.Equal(t, 1, *file.Settings(enforce.Query{User: "eve"}).MaxDevices)
		require.Equal(t, parse(t, "defaults: {max-devices-per-user: 1}\n").Settings(enforce.Query{User: "bob"}), file.Settings(enforce.Query{User: "bob"}))
	}
}

func TestDigest(t *testing.T) {
	const text = "defaults: {max-devices-per-user: 2}\n"
	file := parse(t, text)
	want := file.Digest()
	require.Len(t, want, 32)
	require.Equal(t, want, parse(t, text).Digest())
	seen := map[string]bool{want: true}
	other := func(f *policy.File) {
		require.False(t, seen[f.Digest()])
		seen[f.Digest()] = true
	}
	other(policy.Default())
	other(parse(t, "defaults: {max-devices-per-user: 3}\n"))
	file.Flags = capOf(2, "--max-devices-per-user")
	other(file)
	file.UserFlags = map[snapshot.Username]policy.Settings{"eve": capOf(9, "--max-devices-for-user")}
	other(file)
}

func TestReferences(t *testing.T) {
	const text = `
groups: {staff: [carol, "@admins"], admins: [root]}
overrides:
  - {users: [bob, "@staff"], hosts: ["gpu-[01-04]"], labels: {gpu: h100, rack: 2}, set: {idle: false}}
exempt:
  users: [dave, "@admins"]
  uids: [0]
  hosts: [gpu-90]
  devices: ["gpu-01:[0-3]", GPU-1234, "::1:0"]
  processes: [Xorg, {name: sshd, user: eve}]
  environments: [{user: frank, name: llm}, {host: gpu-02, eid: 4711}]
mail:
  sendmail: /usr/sbin/sendmail
  from: genv@example.org
  addresses: {alice: a@example.org}
  opt-out: [bob, "@staff"]
`
	var got []string
	for _, r := range parse(t, text).References {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%d:%d %s %s %s", r.Place.Line, r.Place.Column, r.Kind, r.Name, r.Value)))
	}
	require.Equal(t, []string{
		"2:18 user carol", "2:46 user root",
		"4:14 user bob", "4:38 host gpu-[01-04]", "4:63 label gpu h100", "4:74 label rack 2",
		"6:11 user dave", "8:11 host gpu-90", "9:13 host gpu-01", "9:39 host ::1",
		"10:40 user eve", "11:25 user frank",
		"15:15 user alice", "16:13 user bob",
	}, got)

	require.NotEmpty(t, example(t).References)
}

func TestMaxAgeOfAHost(t *testing.T) {
	f := parse(t, `
defaults: {max-age: 90s}
overrides:
  - {hosts: [gpu-02], set: {max-age: 5m}}
  - {labels: {gpu: h100}, set: {max-age: false}}
`)
	require.Equal(t, 90*time.Second, f.Settings(enforce.Query{Host: "gpu-01"}).MaxAge)
	require.Equal(t, 5*time.Minute, f.Settings(enforce.Query{Host: "gpu-02"}).MaxAge)
	require.Zero(t, f.Settings(enforce.Query{Host: "gpu-03", Labels: map[string]string{"gpu": "h100"}}).MaxAge)
	require.Equal(t, enforce.DefaultMaxAge, policy.Default().Settings(enforce.Query{Host: "gpu-01"}).MaxAge)
	refused(t, []bad{
		{"", "defaults: {max-age: 2h}", "max-age"},
		{"", "defaults: {max-age: true}", "true does not say how; write 60s"},
		{"", "overrides: [{users: [bob], set: {max-age: 10s}}]", "max-age cannot differ by user"},
	})
}

// warnings is a policy in which the warnings of rules differ by user and host.
const warnings = `
groups: {team: [ann, bob]}
defaults:
  idle: {after: 2h, warn: 1h}
  warn: {for: 10m, rules: {non-env-processes: 30m, max-devices-per-user: {cycles: 5}}}
overrides:
  - {users: ["@team"], set: {warn: 2h}}
  - {users: [bob], set: {warn: {rules: {non-env-processes: false, env-memory: 7}}}}
  - {hosts: [a], set: {warn: {for: 3h, rules: {env-memory: 4h}}, idle: {after: 1h}}}
`

func TestWarningsOfRules(t *testing.T) {
	file := parse(t, warnings)
	ofAll := func(d time.Duration) enforce.Warn { return enforce.Warn{For: d} }
	cap5, hour := enforce.Warn{Cycles: 5}, ofAll(time.Hour)
	for _, row := range []struct {
		host, user string
		warn       enforce.Warn
		rules      map[enforce.Rule]enforce.Warn
		idle       *enforce.Warn
	}{
		{"x", "", ofAll(10 * time.Minute), map[enforce.Rule]enforce.Warn{"non-env-processes": ofAll(30 * time.Minute), "max-devices-per-user": cap5}, &hour},
		{"x", "ann", ofAll(2 * time.Hour), map[enforce.Rule]enforce.Warn{"non-env-processes": ofAll(30 * time.Minute), "max-devices-per-user": cap5}, &hour},
		{"x", "bob", ofAll(2 * time.Hour), map[enforce.Rule]enforce.Warn{"non-env-processes": {}, "env-memory": ofAll(7 * time.Second), "max-devices-per-user": cap5}, &hour},
		{"a", "eve", ofAll(3 * time.Hour), map[enforce.Rule]enforce.Warn{"non-env-processes": ofAll(30 * time.Minute), "env-memory": ofAll(4 * time.Hour), "max-devices-per-user": cap5}, nil},
		{"a", "bob", ofAll(2 * time.Hour), map[enforce.Rule]enforce.Warn{"non-env-processes": {}, "env-memory": ofAll(7 * time.Second), "max-devices-per-user": cap5}, nil},
	} {
		s := file.Settings(enforce.Query{Host: snapshot.Hostname(row.host), User: snapshot.Username(row.user)})
		require.Equal(t, row.warn, s.Warn, row)
		require.Equal(t, row.rules, s.RuleWarns, row)
		require.Equal(t, row.idle, s.Idle.Warn, row)
	}
	require.Nil(t, policy.Default().Settings(enforce.Query{}).RuleWarns, "an override changes no other answer")
}

func TestExplainWarningsOfRules(t *testing.T) {
	var got []policy.Explanation
	for _, e := range parse(t, warnings).Explain(enforce.Query{User: "bob", Host: "x"}) {
		if e.Key == "idle" || len(e.Key) >= 4 && e.Key[:4] == "warn" {
			got = append(got, e)
		}
	}
	require.Equal(t, []policy.Explanation{
		{Key: "idle", Value: "{after: 2h, warn: {for: 1h}}", From: "defaults, p.yaml:4:10"},
		{Key: "warn", Value: "{for: 2h}", From: "override for users @team, p.yaml:7:36"},
		{Key: "warn.rules.non-env-processes", Value: "off", From: "override for users bob, p.yaml:8:60"},
		{Key: "warn.rules.env-memory", Value: "{for: 7s}", From: "override for users bob, p.yaml:8:79"},
		{Key: "warn.rules.max-devices-per-user", Value: "{cycles: 5}", From: "defaults, p.yaml:5:75"},
	}, got)
	idle := parse(t, "defaults: {idle: {after: 1h, below: 5%, warn: false}}").Explain(enforce.Query{})
	require.Contains(t, idle, policy.Explanation{Key: "idle", Value: "{after: 1h, below: 5%, warn: false}", From: "defaults, p.yaml:1:19"})
}
