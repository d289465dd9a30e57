package policy_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func device(index snapshot.DeviceIndex) *snapshot.DeviceIndex { return &index }

func exempt(w policy.Who) policy.Exemption {
	return policy.Exemption{Who: w, Reason: "deadline", By: "alice (uid 1000)", Created: noon, Until: noon.Add(4 * time.Hour)}
}

func TestWhoMayBeExempted(t *testing.T) {
	for says, rows := range map[string][]policy.Who{
		"": {
			{User: "bob"},
			{User: "uid 1004"},
			{User: "bob", Host: "a"},
			{Host: "a"},
			{Host: "a", Device: device(0)},
			{Host: "a", Device: device(0), UUID: "GPU-0"},
			{User: "bob", Rule: enforce.RuleIdle},
			{User: "bob", Host: "a", Rule: enforce.RuleMaxDuration},
			{User: "bob", Rule: enforce.RuleMaxDevicesPerUser},
			{Host: "a", Rule: enforce.RuleNonEnvProcesses},
			{User: "bob", Rule: enforce.RuleCaps},
			{User: "bob", Rule: "nlp paid 4"},
			{Host: "a", Rule: "nlp paid 4"},
		},
		"a user or a host":      {{}, {Rule: enforce.RuleIdle}, {Device: device(1)}},
		"with its host":         {{User: "bob", Device: device(0)}, {User: "bob", Host: "a", Device: device(0)}, {Host: "a", Device: device(0), Rule: enforce.RuleIdle}},
		"uuid needs device":     {{Host: "a", UUID: "GPU-0"}},
		"not a GPU":             {{Host: "a", Device: device(-1)}},
		"unknown rule":          {{User: "bob", Rule: "every/thing"}, {User: "bob", Rule: "\x1b[2J"}},
		"for one user":          {{User: "bob", Rule: enforce.RuleNonEnvProcesses}, {User: "bob", Host: "a", Rule: enforce.RuleEnvMemory}},
		"leave out one of them": {{User: "bob", Host: "a", Rule: enforce.RuleCaps}, {User: "bob", Host: "a", Rule: "a100"}},
		"leave out the host":    {{User: "bob", Host: "a", Rule: enforce.RuleMaxMemoryPerUser}},
		"name a user":           {{Host: "a", Rule: enforce.RuleMaxEnvsPerUser}},
		"has at most 256 bytes": {{User: snapshot.Username(strings.Repeat("x", 257))}},
	} {
		for _, w := range rows {
			err := w.Check()
			if says == "" {
				require.NoError(t, err, w)
			} else {
				require.ErrorContains(t, err, says, w)
			}
		}
	}
}

func TestWhatAnExemptionNeeds(t *testing.T) {
	good := exempt(policy.Who{User: "bob"})
	require.NoError(t, good.Check())
	for name, change := range map[string]func(*policy.Exemption){
		"no author":      func(e *policy.Exemption) { e.By = "" },
		"no reason":      func(e *policy.Exemption) { e.Reason = " " },
		"a long reason":  func(e *policy.Exemption) { e.Reason = strings.Repeat("é", policy.MaxReason+1) },
		"an escape":      func(e *policy.Exemption) { e.Reason = "\x1b]0;x\a" },
		"two lines":      func(e *policy.Exemption) { e.Reason = "a\nb" },
		"reordered text": func(e *policy.Exemption) { e.Reason = "a\u202eb" },
		"no beginning":   func(e *policy.Exemption) { e.Created = time.Time{} },
		"no end":         func(e *policy.Exemption) { e.Until = time.Time{} },
		"no length":      func(e *policy.Exemption) { e.Until = e.Created },
		"too long":       func(e *policy.Exemption) { e.Until = e.Created.Add(policy.MaxExemption + 1) },
		"no one":         func(e *policy.Exemption) { e.User = "" },
	} {
		bad := good
		change(&bad)
		require.Error(t, bad.Check(), name)
		list, err := policy.ExemptionList{}.Add(bad)
		require.Error(t, err, name)
		require.Empty(t, list)
	}
	good.Reason = strings.Repeat("é", policy.MaxReason-10) + "<b>&'\""
	require.NoError(t, good.Check(), "what pages escape is text")
}

func TestHours(t *testing.T) {
	for _, hours := range []float64{0, -1, 720.1, math.NaN(), math.Inf(1), math.Inf(-1), 1e300, 1e-300} {
		require.Error(t, proctest.Try(policy.ExemptionHours(hours)).Err, hours)
	}
	require.Equal(t, 30*time.Minute, proctest.Try(policy.ExemptionHours(0.5)).OK(t))
}

func TestList(t *testing.T) {
	var list policy.ExemptionList
	for i := range policy.MaxExemptions {
		list = proctest.Try(list.Add(exempt(policy.Who{Host: "a", Device: device(snapshot.DeviceIndex(i))}))).OK(t)
	}
	require.ErrorContains(t, proctest.Try(list.Add(exempt(policy.Who{User: "bob"}))).Err, "already")
	again := exempt(policy.Who{Host: "a", Device: device(7)})
	again.Until = noon.Add(time.Hour)
	shorter := proctest.Try(list.Add(again)).OK(t, "it takes the place of the same one")
	require.Len(t, shorter, policy.MaxExemptions)
	require.Len(t, list, policy.MaxExemptions)
	left, expired := shorter.Expire(noon.Add(time.Hour))
	require.Equal(t, policy.ExemptionList{again}, expired)
	require.Len(t, left, policy.MaxExemptions-1)
	_, _, found := list.Remove(policy.Who{Host: "b", Device: device(7)})
	require.False(t, found)
	named := policy.Who{Host: "a", Device: device(7), UUID: "GPU-7"}
	both := proctest.Try(list[:5].Add(exempt(named))).OK(t)
	_, _, found = both.Remove(policy.Who{Host: "a", Device: device(7), UUID: "GPU-8"})
	require.False(t, found, "another GPU has the index now")
	_, ended, found := both.Remove(policy.Who{Host: "a", Device: device(9), UUID: "GPU-7"})
	require.True(t, found)
	require.Equal(t, named, ended.Who)
	left, ended, found = list.Remove(policy.Who{Host: "a", Device: device(7)})
	require.True(t, found)
	require.Equal(t, device(7), ended.Device)
	require.Len(t, left, policy.MaxExemptions-1)
}

// A clock that is set back lengthens no exemption beyond what any may have.
func TestExpireAfterTheClockWasSetBack(t *testing.T) {
	list := policy.ExemptionList{exempt(policy.Who{User: "bob"})}
	left, expired := list.Expire(noon.Add(-policy.MaxExemption))
	require.Empty(t, left)
	require.Len(t, expired, 1)
	left, _ = list.Expire(noon.Add(4*time.Hour - 1))
	require.Len(t, left, 1)
	require.Equal(t, noon.Add(3*time.Hour), list.Move(func(t time.Time) time.Time { return t.Add(-time.Hour) })[0].Until)
}

// The longest exemption holds from its first moment on, also where its times are kept in whole seconds.
func TestTheLongestExemption(t *testing.T) {
	now := noon.Add(600 * time.Millisecond)
	longest := exempt(policy.Who{User: "bob"})
	longest.Created, longest.Until = now, now.Add(policy.MaxExemption)
	left, _ := policy.ExemptionList{longest}.Move(func(t time.Time) time.Time { return t.Round(time.Second) }).Expire(now)
	require.Len(t, left, 1)
}

// A clock that is set before an exemption begins, or whole seconds, make no exemption that none may be.
func TestMovedExemptions(t *testing.T) {
	now := time.Now()
	later, short := exempt(policy.Who{User: "bob"}), exempt(policy.Who{User: "alice"})
	later.Created, later.From, later.Until = now, now.Round(0).Add(time.Minute), now.Round(0).Add(3*time.Hour)
	short.Created, short.Until = noon.Add(600*time.Millisecond), noon.Add(900*time.Millisecond)
	list := policy.ExemptionList{later, short}.Move(func(t time.Time) time.Time {
		if t.Round(0) != t { // that of the machine has a monotonic reading
			t = t.Add(time.Hour)
		}
		return t.Round(time.Second)
	})
	for i := range list {
		require.NoError(t, list[i].Check())
	}
}

// BenchmarkJudge judges 500 pairs of hosts, without exemptions and with as many as there may be.
func BenchmarkJudgeWithExemptions(b *testing.B) {
	var big snapshot.Cluster
	for i := range 500 {
		for _, h := range cluster().Hosts {
			h.Name = snapshot.Hostname(fmt.Sprintf("%s-%d", h.Name, i))
			big.Hosts = append(big.Hosts, h)
		}
	}
	var list policy.ExemptionList
	for i := range policy.MaxExemptions {
		list = append(list, exempt(policy.Who{User: snapshot.Username(fmt.Sprint("user", i))}))
	}
	for name, policy := range map[string]enforce.Policy{"without": everything(), "with": policy.WithExemptions(everything(), list, noon)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				rules.Judge(policy, big, enforce.Memory{}, noon)
			}
		})
	}
}

// TestAnExemptionThatBeginsLater: a job of four days has three at most, until the exemption for a deadline begins.
func TestAnExemptionThatBeginsLater(t *testing.T) {
	at := func(day, hour int) time.Time { return time.Date(2026, 12, day, hour, 0, 0, 0, time.UTC) }
	file := parse(t, "defaults: {max-process-age: 3d, warn: 1d}")
	e := policy.Exemption{
		Who: policy.Who{User: "bob", Rule: enforce.RuleMaxProcessAge}, Reason: "paper", By: "root", Created: at(-1, 12), From: at(1, 0), Until: at(8, 0),
	}
	list := proctest.Try(policy.ExemptionList{}.Add(e)).OK(t)
	uid, booted := snapshot.UID(1001), at(-20, 0)
	judge := func(started, now time.Time) []enforce.Finding {
		s := &snapshot.Snapshot{Boot: booted, Devices: []snapshot.Device{{TotalMemory: snapshot.MiB(80000)}}, Processes: []snapshot.Process{
			{PID: 5, UID: &uid, Username: "bob", Start: snapshot.StartTime(started.Sub(booted) / (10 * time.Millisecond)), Usage: []snapshot.DeviceUsage{{}}},
		}}
		plan, _, _ := rules.Judge(policy.WithExemptions(file, list, now), snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}, enforce.Memory{}, now)
		return plan.Findings
	}
	found := judge(at(-4, 0), at(0, 12)) // 30 November
	require.Len(t, found, 1)
	require.Equal(t, at(1, 12), found[0].Due.UTC())
	require.Empty(t, judge(at(-2, 0), at(2, 0)))
	require.Empty(t, judge(at(0, 0), at(7, 23)))
	require.Len(t, judge(at(0, 0), at(8, 0)), 1)

	for name, row := range map[string]struct {
		change func(*policy.Exemption)
		says   string
	}{
		"30 days from its beginning": {func(e *policy.Exemption) { e.Until = e.From.Add(policy.MaxExemption) }, ""},
		"longer":                     {func(e *policy.Exemption) { e.Until = e.From.Add(policy.MaxExemption + 1) }, "at most 720 hours"},
		"an end before it":           {func(e *policy.Exemption) { e.Until = e.From.Add(-1) }, "more than 0"},
		"in the past":                {func(e *policy.Exemption) { e.From = e.Created.Add(-1) }, "begins now or later"},
		"in years":                   {func(e *policy.Exemption) { e.From, e.Until = at(700, 0), at(701, 0) }, "within a year"},
	} {
		own := e
		row.change(&own)
		if err := own.Check(); row.says == "" {
			require.NoError(t, err, name)
		} else {
			require.ErrorContains(t, err, row.says, name)
		}
	}
	left, expired := list.Expire(at(0, 0))
	require.Equal(t, list, left)
	require.Empty(t, expired)
	later := list.Move(func(t time.Time) time.Time { return t.Add(time.Hour) })
	require.Equal(t, at(1, 1), later[0].From)
	require.Contains(t, e.String(), "user bob from rule max-process-age is exempt from "+at(1, 0).Local().Format(time.DateTime)+" until ")
}
