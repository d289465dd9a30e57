package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

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
	none := policy.Default().Settings(enforce.Query{})
	require.Nil(t, none.RuleWarns, "an override changes no other answer")
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

// TestActsAtOnce: what people are not told of before is named where it is written, unless the file says that they aren't.
func TestActsAtOnce(t *testing.T) {
	for text, line := range map[string]int{
		"defaults: {env-memory: true}\ncaps: [{gpus: 2}]": 1, "overrides:\n  - hosts: [a]\n    set:\n      idle: {after: 1h}": 4,
		"caps:\n  - {gpus: 3, warn: 1h}\n  - {gpus: 2}": 3, "defaults: {warn: 1h}\ncaps: [{gpus: 2}]": 0, "defaults: {warn: false}\ncaps: [{gpus: 2}]": 0,
		"defaults: {non-env-processes: count, env-devices: false, idle: {after: 1h, warn: false}}": 0, "contact: me": 0,
	} {
		file, err := policy.Parse("p.yaml", []byte(text))
		require.NoError(t, err, text)
		at := 0
		if place := file.ActsAtOnce(); place != nil {
			at = place.Line
		}
		require.Equal(t, line, at, text)
	}
}
