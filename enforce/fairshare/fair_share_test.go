package fairshare_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/fairshare"
	"github.com/seed-3119e985/genv/snapshot"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// capped has caps and a warning.
type capped struct {
	devices *int
	warn    time.Duration
}

func (c capped) Settings(enforce.Query) *enforce.Settings {
	return &enforce.Settings{MaxDevices: c.devices, MaxEnvs: new(9), Warn: enforce.Warn{For: c.warn}}
}
func (c capped) Exempt(enforce.Subject) (string, bool) { return "", false }
func (c capped) Fleet() enforce.Fleet                  { return enforce.Fleet{TellUsers: true} }

// host has GPUs that are attached to users; "" for none, and "-" for one that only a process uses.
func host(name string, users ...snapshot.Username) snapshot.Host {
	s := &snapshot.Snapshot{}
	for i, user := range users {
		d := snapshot.Device{Index: snapshot.DeviceIndex(i)}
		switch user {
		case "":
		case "-":
			s.Processes = append(s.Processes, snapshot.Process{PID: 9, Usage: []snapshot.DeviceUsage{{Index: d.Index}}})
		default:
			at := slices.IndexFunc(s.Environments, func(e snapshot.Environment) bool { return e.Username == user })
			if at < 0 {
				at = len(s.Environments)
				s.Environments = append(s.Environments, snapshot.Environment{EID: snapshot.EnvID(fmt.Sprint(at + 1)), UID: 1000, Username: user})
			}
			d.Attachments = []snapshot.Attachment{{EID: s.Environments[at].EID}}
		}
		s.Devices = append(s.Devices, d)
	}
	return snapshot.Host{Name: snapshot.Hostname(name), Snapshot: s}
}

func fleet(hosts ...snapshot.Host) snapshot.Cluster { return snapshot.Cluster{Hosts: hosts} }

// usage is what users had, in hours.
func usage(now time.Time, hours map[snapshot.Username]int64) fairshare.Usage {
	u := fairshare.Usage{Until: now, Known: 30 * 24 * time.Hour, Attached: make(map[snapshot.Username]fairshare.Seconds)}
	for user, h := range hours {
		u.Attached[user] = fairshare.Seconds{Attached: h * 3600}
	}
	return u
}

var setting = fairshare.Setting{Boost: 2, Free: 25}

// settled is the memory after an hour in which nothing changes.
func settled(s fairshare.Setting, u fairshare.Usage, c snapshot.Cluster) fairshare.Memory {
	m := fairshare.Memory{}
	for i := range 7 {
		m = fairshare.Next(s, u, c, m, noon.Add(time.Duration(i-6)*10*time.Minute))
	}
	return m
}

func TestWhoIsBoosted(t *testing.T) {
	light := map[snapshot.Username]int64{"alice": 10, "bob": 90}
	alice := host("a", "alice", "", "", "bob")
	down := snapshot.Host{Name: "down"}
	with := func(change func(*fairshare.Usage)) fairshare.Usage {
		u := usage(noon, light)
		change(&u)
		return u
	}
	for name, row := range map[string]struct {
		setting fairshare.Setting
		usage   fairshare.Usage
		fleet   snapshot.Cluster
		want    []snapshot.Username
	}{
		"a light user":                        {setting, usage(noon, light), fleet(alice), []snapshot.Username{"alice"}},
		"a user who had nothing":              {setting, usage(noon, map[snapshot.Username]int64{"bob": 90}), fleet(alice), []snapshot.Username{"alice"}},
		"just enough is free":                 {setting, usage(noon, light), fleet(host("a", "alice", "alice", "bob", "")), []snapshot.Username{"alice"}},
		"a failed host doesn't count":         {setting, usage(noon, light), fleet(alice, host("b"), down), []snapshot.Username{"alice"}},
		"off":                                 {fairshare.Setting{Free: 25}, usage(noon, light), fleet(alice), nil},
		"equal shares":                        {setting, usage(noon, map[snapshot.Username]int64{"alice": 50, "bob": 50}), fleet(alice), nil},
		"hardly under an equal share":         {setting, usage(noon, map[snapshot.Username]int64{"alice": 46, "bob": 54}), fleet(alice), nil},
		"the only one":                        {setting, usage(noon, map[snapshot.Username]int64{"alice": 5}), fleet(host("a", "alice", "", "")), nil},
		"no user had anything":                {setting, usage(noon, nil), fleet(alice), nil},
		"the fleet is full":                   {setting, usage(noon, light), fleet(host("a", "alice", "alice", "bob", "bob")), nil},
		"too little is free":                  {setting, usage(noon, light), fleet(host("a", "alice", "alice", "bob", "bob", "")), nil},
		"what is free is used":                {setting, usage(noon, light), fleet(host("a", "alice", "-", "-", "-")), nil},
		"no devices":                          {setting, usage(noon, light), fleet(host("a")), nil},
		"no hosts":                            {setting, usage(noon, light), fleet(), nil},
		"most hosts failed":                   {setting, usage(noon, light), fleet(alice, down, down), nil},
		"half of the hosts failed":            {setting, usage(noon, light), fleet(alice, down), nil},
		"usage is unknown":                    {setting, fairshare.Usage{}, fleet(alice), nil},
		"usage is old":                        {setting, usage(noon.Add(-9*time.Hour), light), fleet(alice), nil},
		"usage is of the future":              {setting, usage(noon.Add(9*time.Hour), light), fleet(alice), nil},
		"usage is known for a day":            {setting, with(func(u *fairshare.Usage) { u.Known = 24 * time.Hour }), fleet(alice), nil},
		"the user may be one of many":         {setting, with(func(u *fairshare.Usage) { u.Partial = true; delete(u.Attached, "alice") }), fleet(alice), nil},
		"known, though others may be missing": {setting, with(func(u *fairshare.Usage) { u.Partial = true }), fleet(alice), []snapshot.Username{"alice"}},
		"unknown time counts against one":     {setting, with(func(u *fairshare.Usage) { u.Attached["alice"] = fairshare.Seconds{Attached: 3600, Unknown: 99 * 3600} }), fleet(alice), nil},
		"an environment without a user":       {setting, usage(noon, map[snapshot.Username]int64{"bob": 90, "carol": 9}), fleet(host("a", "", "", "", "bob")), nil},
		"not on the fleet now":                {setting, usage(noon, map[snapshot.Username]int64{"bob": 90, "carol": 9}), fleet(host("a", "bob", "", "")), nil},
	} {
		require.Equal(t, row.want, settled(row.setting, row.usage, row.fleet).Boosted(), name)
	}
}

// It takes a while until a fleet counts as free, and it does until much less is free.
func TestHysteresis(t *testing.T) {
	light := map[snapshot.Username]int64{"alice": 10, "bob": 90}
	free := func(n int) snapshot.Cluster {
		users := make([]snapshot.Username, 16)
		for i := range 16 - n {
			users[i] = "alice"
		}
		return fleet(host("a", users...))
	}
	for name, steps := range map[string][]struct {
		minutes, free int
		want          bool
	}{
		"after half an hour":                 {{0, 4, false}, {20, 4, false}, {9, 5, false}, {1, 4, true}},
		"less in between":                    {{0, 4, false}, {20, 3, false}, {10, 4, false}, {29, 4, false}, {1, 4, true}},
		"until less than half":               {{0, 4, false}, {30, 4, true}, {1, 3, true}, {1, 2, true}, {1, 1, false}, {1, 2, false}, {60, 3, false}, {1, 4, false}, {30, 4, true}},
		"one more doesn't bring it back":     {{0, 15, false}, {30, 15, true}, {1, 0, false}, {5, 4, false}, {5, 3, false}},
		"the clock was set back":             {{0, 4, false}, {-600, 4, false}, {29, 4, false}, {1, 4, true}},
		"it was free before the next cycles": {{0, 4, false}, {300, 4, true}},
	} {
		m, now := fairshare.Memory{}, noon
		for i, step := range steps {
			now = now.Add(time.Duration(step.minutes) * time.Minute)
			m = fairshare.Next(setting, usage(now, light), free(step.free), m, now)
			require.Equal(t, step.want, len(m.Boosted()) > 0, "%s, %d", name, i)
			kept, err := json.Marshal(m)
			require.NoError(t, err)
			m = fairshare.Memory{}
			require.NoError(t, json.Unmarshal(kept, &m), "a restart changes nothing")
		}
	}
	lights := func(hours int64, was fairshare.Memory) fairshare.Memory {
		return fairshare.Next(setting, usage(noon, map[snapshot.Username]int64{"alice": hours, "bob": 200 - hours}), free(16-1), was, noon)
	}
	m := lights(95, fairshare.Memory{})
	require.Empty(t, m.Light, "95 % of an equal share")
	m = lights(89, m)
	require.True(t, m.Light["alice"])
	m = lights(99, m)
	require.True(t, m.Light["alice"], "until it is an equal share")
	m = lights(100, m)
	require.Empty(t, m.Light)

	m = settled(setting, usage(noon, light), free(8))
	for _, row := range []struct {
		after time.Duration
		want  int
	}{{5 * time.Hour, 1}, {7 * time.Hour, 0}} {
		next := fairshare.Next(setting, fairshare.Usage{}, free(8), m, noon.Add(row.after))
		require.Len(t, next.Boosted(), row.want, "what was known lasts for some hours")
	}
	gone := fairshare.Next(setting, usage(noon, light), fleet(snapshot.Host{Name: "a"}), m, noon)
	require.Equal(t, []snapshot.Username{"alice"}, gone.Boosted(), "a host that doesn't answer changes nothing")
	left := fairshare.Next(setting, usage(noon, light), fleet(host("a", "", "", "bob")), m, noon)
	require.Empty(t, left.Light)
}

// judge is a cycle.
func judge(s fairshare.Setting, u fairshare.Usage, c snapshot.Cluster, p enforce.Policy, m fairshare.Memory, rules enforce.Memory, now time.Time) (fairshare.Memory, enforce.Plan, enforce.Memory, []enforce.Event) {
	next := fairshare.Next(s, u, c, m, now)
	plan, after, events := enforce.Judge(next.Policy(s, p), c, next.Forget(m, rules), now)
	return next, plan, after, events
}

// When a boost ends, its devices are found, users are warned, and only then something is done.
func TestTheEndOfABoost(t *testing.T) {
	light := map[snapshot.Username]int64{"alice": 10, "bob": 90}
	p := capped{new(2), time.Hour}
	for _, devices := range []int{4, 5} { // within the boost, and beyond it
		alice := make([]snapshot.Username, devices)
		for i := range alice {
			alice[i] = "alice"
		}
		free, full := fleet(host("a", alice...), host("b", "", "", "")), fleet(host("a", alice...), host("b", "bob", "bob", "bob"))
		m, rules, now := settled(setting, usage(noon, light), free), enforce.Memory{}, noon
		var plan enforce.Plan
		var events []enforce.Event
		step := func(c snapshot.Cluster, after time.Duration) {
			now = now.Add(after)
			m, plan, rules, events = judge(setting, usage(now, light), c, p, m, rules, now)
		}
		step(free, 0)
		step(free, 50*time.Minute)
		require.Len(t, plan.Findings, devices-4, "two more than two are allowed")
		step(full, 5*time.Minute)
		require.Len(t, plan.Findings, 2, "those of alice, and bob's")
		f := plan.Findings[0]
		require.Equal(t, &enforce.CountExcess{Used: devices, Limit: 2, Hosts: 1, Attached: devices}, f.Count)
		require.True(t, f.Pending)
		require.Equal(t, now.Add(time.Hour), f.Due, "the warning begins now, whatever was found before")
		told := slices.ContainsFunc(events, func(e enforce.Event) bool { return e.Kind == enforce.EventNotify && e.ID == f.ID })
		require.True(t, told, "alice is told, also if she was before")
		step(full, 59*time.Minute)
		require.True(t, plan.Findings[0].Pending)
		require.Empty(t, plan.Reports)
		step(full, time.Minute)
		require.Len(t, plan.Findings[0].Detach, devices-2)
		require.False(t, plan.Findings[0].Pending)
	}
}

// TestPropertyOnlyLoosens: whatever is known, caps are as before or higher, nothing else changes,
// and without a setting nothing does.
func TestPropertyOnlyLoosens(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	users := []snapshot.Username{"", "alice", "bob", "carol", "-"}
	m, rules, plain, now := fairshare.Memory{}, enforce.Memory{}, enforce.Memory{}, noon
	boosted := 0
	for range 5000 {
		now = now.Add(time.Duration(random.IntN(40)) * time.Minute)
		var c snapshot.Cluster
		for i := range 1 + random.IntN(3) {
			owners := make([]snapshot.Username, random.IntN(8))
			for j := range owners {
				owners[j] = users[random.IntN(len(users))*random.IntN(2)]
			}
			h := host(fmt.Sprint("h", i), owners...)
			if random.IntN(8) == 0 {
				h.Snapshot = nil
			}
			c.Hosts = append(c.Hosts, h)
		}
		u := usage(now.Add(-time.Duration(random.IntN(8))*time.Hour), map[snapshot.Username]int64{"alice": random.Int64N(9), "bob": random.Int64N(99), "carol": random.Int64N(99)})
		s := fairshare.Setting{Boost: random.IntN(3), Free: 10 + random.IntN(30)}
		p := capped{new(random.IntN(4)), time.Duration(random.IntN(3)) * time.Minute}
		next := fairshare.Next(s, u, c, m, now)
		with := next.Policy(s, p)
		for _, user := range append(users, "mallory") {
			q := enforce.Query{User: user, At: now}
			before, after := p.Settings(q), with.Settings(q)
			require.GreaterOrEqual(t, *after.MaxDevices, *before.MaxDevices)
			require.LessOrEqual(t, *after.MaxDevices, *before.MaxDevices+s.Boost)
			if *before.MaxDevices == 0 {
				require.Zero(t, *after.MaxDevices, "a ban")
			}
			if *after.MaxDevices > *before.MaxDevices {
				boosted++
				require.Contains(t, next.Boosted(), user)
			}
			after.MaxDevices = before.MaxDevices
			require.Equal(t, before, after)
			require.Nil(t, fairshare.Memory{Free: true, Light: map[snapshot.Username]bool{user: true}}.Policy(s, capped{}).Settings(q).MaxDevices, "no cap stays none")
		}
		require.Equal(t, p.Settings(enforce.Query{Host: "h0"}), with.Settings(enforce.Query{Host: "h0"}))
		if s.Boost == 0 {
			require.Equal(t, enforce.Policy(p), with)
			require.Empty(t, next)
		}
		before := maps.Clone(rules.Present)
		_, plan, after, _ := judge(s, u, c, p, m, rules, now)
		require.Equal(t, before, rules.Present, "a memory is a value")
		planWithout, plainAfter, _ := enforce.Judge(p, c, plain, now)
		require.LessOrEqual(t, detached(&plan), detached(&planWithout))
		m, rules, plain = next, after, plainAfter
	}
	require.Greater(t, boosted, 100)
}

func detached(p *enforce.Plan) (n int) {
	for i := range p.Findings {
		if f := &p.Findings[i]; !f.Pending {
			n += len(f.Detach)
		}
	}
	return n
}
