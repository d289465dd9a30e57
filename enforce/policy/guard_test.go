package policy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/exemption"
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
	f, err := policy.Parse("p.yaml", []byte(guardPolicy))
	require.NoError(t, err)
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
		want := guard.Setting{}
		if c.want != guard.Off {
			want = guard.Setting{Mode: c.want, ExemptUsers: []snapshot.Username{"alice", "zoe"}, ExemptUIDs: []snapshot.UID{42, 5000}}
		}
		q := enforce.Query{Host: c.host, Labels: c.labels, At: c.at}
		require.Equal(t, want, f.Settings(q).Guard, "%s %v", c.host, c.at)
		q.User = "bob"
		require.Zero(t, f.Settings(q).Guard, "it is a host's")
	}
	require.Zero(t, policy.Default().Settings(enforce.Query{Host: "gpu-01", At: noon}).Guard)
}

func TestErrorsOfTheGuardKey(t *testing.T) {
	for text, want := range map[string]string{
		"defaults: {guard: on}":                            `unknown value "on"; use one of off, watch, enforce`,
		"defaults: {guard: enforec}":                       `did you mean "enforce"?`,
		"defaults: {guard: true}":                          "guard: true does not say how; write watch or enforce, or false for none",
		"overrides: [{users: [bob], set: {guard: watch}}]": "guard cannot differ by user; select hosts, or put the users under `exempt:`",
	} {
		_, err := policy.Parse("p.yaml", []byte(text))
		require.ErrorContains(t, err, want)
	}
}

func TestGuardAndExemptionsOfOperators(t *testing.T) {
	f, err := policy.Parse("p.yaml", []byte(guardPolicy))
	require.NoError(t, err)
	now := time.Date(2026, 11, 23, 11, 0, 0, 0, time.UTC)
	list := exemption.List{}
	for _, who := range []exemption.Who{
		{User: "bob"}, {User: "carol", Host: "gpu-02"}, {User: "dave", Rule: enforce.RuleIdle}, {Host: "gpu-05"}, {Host: "gpu-06", Rule: enforce.RuleIdle},
	} {
		list = append(list, exemption.Exemption{Who: who, By: "op", Reason: "test", Created: now.Add(-time.Hour), Until: now.Add(time.Hour)})
	}
	p := exemption.With(f, list, now)
	guardOf := func(host snapshot.Hostname) guard.Setting {
		return p.Settings(enforce.Query{Host: host, At: now}).Guard
	}
	uids := []snapshot.UID{42, 5000}
	require.Equal(t, guard.Setting{Mode: guard.Watch, ExemptUsers: []snapshot.Username{"alice", "zoe", "bob"}, ExemptUIDs: uids}, guardOf("gpu-01"))
	require.Equal(t, guard.Setting{Mode: guard.Enforce, ExemptUsers: []snapshot.Username{"alice", "zoe", "bob", "carol"}, ExemptUIDs: uids}, guardOf("gpu-02"))
	require.Zero(t, guardOf("gpu-03"), "off stays off")
	require.Zero(t, guardOf("gpu-05"), "the host is exempt")
	require.Equal(t, guard.Watch, guardOf("gpu-06").Mode, "exempt from one rule is not exempt from the guard")
	require.Equal(t, guard.Watch, exemption.With(f, list, now.Add(2*time.Hour)).Settings(enforce.Query{Host: "gpu-05", At: now}).Guard.Mode)
}
