package policy_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/snapshot"
)

// everything is a policy with all rules.
func everything() *policy.File {
	one, bytes := 1, snapshot.MustMemory("1")
	file := policy.Default()
	file.Defaults.Settings = enforce.Settings{
		NonEnvProcesses: true, EnvDevices: true, EnvMemory: true, MaxDevices: &one, MaxMemory: &bytes, MaxEnvs: &one,
		Idle: &enforce.Idle{}, MaxDuration: time.Hour,
	}
	file.OfFleet = enforce.Fleet{}
	return file
}

// cluster has two hosts on which bob and carol break the same rules: on each, each has a
// process outside on device 0 or 1, and two environments with an idle device each.
func cluster() snapshot.Cluster {
	var c snapshot.Cluster
	for _, host := range []snapshot.Hostname{"a", "b"} {
		s := &snapshot.Snapshot{Boot: noon.Add(-24 * time.Hour)}
		for i := range 6 {
			s.Devices = append(s.Devices, snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(81559)})
		}
		long, _ := snapshot.ParseDate("01/11/2026 10:00:00")
		for i, user := range []snapshot.Username{"bob", "carol"} {
			uid := snapshot.UID(1001 + i)
			s.Processes = append(s.Processes, snapshot.Process{
				PID: snapshot.PID(50 + i), Start: 1, UID: &uid, Username: user, Usage: []snapshot.DeviceUsage{{Index: snapshot.DeviceIndex(i)}},
			})
			for k := range 2 {
				eid := snapshot.EnvID(fmt.Sprint(100 + 10*i + k))
				s.Environments = append(s.Environments, snapshot.Environment{EID: eid, UID: uid, Username: user})
				d := &s.Devices[2+2*i+k]
				d.Attachments = append(d.Attachments, snapshot.Attachment{EID: eid, Time: long, Since: 1})
			}
		}
		c.Hosts = append(c.Hosts, snapshot.Host{Name: host, Snapshot: s})
	}
	return c
}

// found are the findings, as "rule host user".
func found(list policy.ExemptionList, now time.Time) []string { return foundIn(cluster(), list, now) }

func foundIn(cluster snapshot.Cluster, list policy.ExemptionList, now time.Time) []string {
	exempted := policy.WithExemptions(everything(), list, now)
	plan, _, _ := rules.Judge(exempted, cluster, enforce.Memory{}, now)
	var all []string
	for i := range plan.Findings {
		f := &plan.Findings[i]
		all = append(all, fmt.Sprintf("%s %s %s", f.Rule, f.Host, f.User))
	}
	slices.Sort(all)
	return all
}

func TestJudgeHonoursExemptions(t *testing.T) {
	without := found(nil, noon)
	require.Len(t, without, 2*2+2*2*4+2, "processes, attachments by two rules, one cap each: the other caps count nothing then")
	of := func(f func(rule, host, user string) bool) []string {
		return slices.DeleteFunc(slices.Clone(without), func(s string) bool {
			var rule, host, user string
			if n, _ := fmt.Sscan(s, &rule, &host, &user); n == 2 {
				host, user = "", host
			}
			return f(rule, host, user)
		})
	}
	for name, row := range map[string]struct {
		who  policy.Who
		gone func(rule, host, user string) bool
	}{
		"a user":                      {policy.Who{User: "bob"}, func(_, _, user string) bool { return user == "bob" }},
		"a user on a host":            {policy.Who{User: "bob", Host: "a"}, func(_, host, user string) bool { return user == "bob" && host == "a" }},
		"a user from a rule":          {policy.Who{User: "bob", Rule: enforce.RuleIdle}, func(rule, _, user string) bool { return user == "bob" && rule == "idle" }},
		"a user from a cap":           {policy.Who{User: "bob", Rule: enforce.RuleMaxEnvsPerUser}, func(rule, _, user string) bool { return user == "bob" && rule == "max-envs-per-user" }},
		"a user from a rule there":    {policy.Who{User: "bob", Host: "b", Rule: enforce.RuleMaxDuration}, func(rule, host, user string) bool { return user == "bob" && host == "b" && rule == "max-duration" }},
		"a host":                      {policy.Who{Host: "a"}, func(_, host, _ string) bool { return host == "a" }},
		"a host from a rule":          {policy.Who{Host: "a", Rule: enforce.RuleNonEnvProcesses}, func(rule, host, _ string) bool { return host == "a" && rule == "non-env-processes" }},
		"another host":                {policy.Who{Host: "c"}, func(_, _, _ string) bool { return false }},
		"another user":                {policy.Who{User: "bo"}, func(_, _, _ string) bool { return false }},
		"a user of another host":      {policy.Who{User: "bob", Host: "c"}, func(_, _, _ string) bool { return false }},
		"no one (damaged)":            {policy.Who{}, func(_, _, _ string) bool { return false }},
		"no one from idle (damaged)":  {policy.Who{Rule: enforce.RuleIdle}, func(_, _, _ string) bool { return false }},
		"an unknown rule (damaged)":   {policy.Who{User: "bob", Rule: "x"}, func(_, _, _ string) bool { return false }},
		"a device of bob's (damaged)": {policy.Who{User: "bob", Device: device(0)}, func(_, _, _ string) bool { return false }},
		"the device that carol uses": {policy.Who{Host: "a", Device: device(1)}, func(rule, host, user string) bool {
			return rule == "non-env-processes" && host == "a" && user == "carol"
		}},
	} {
		list := policy.ExemptionList{exempt(row.who)}
		require.Equal(t, of(row.gone), found(list, noon), name)
		require.Equal(t, without, found(list, noon.Add(4*time.Hour)), name+": it ends by itself")
	}
}

// An exempt GPU is the GPU that had its index when its host first showed it.
func TestAnExemptDeviceFollowsItsGPU(t *testing.T) {
	numbered := func(uuids ...snapshot.GPUUUID) snapshot.Cluster {
		c := cluster()
		for i, uuid := range uuids {
			c.Hosts[0].Snapshot.Devices[i].UUID = uuid
		}
		return c
	}
	list := policy.ExemptionList{exempt(policy.Who{Host: "a", Device: device(1)}), exempt(policy.Who{Host: "a", User: "eve"})}
	list = list.Follow(snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Err: errors.New("down")}}}).Follow(numbered("GPU-0", "GPU-1"))
	require.Equal(t, snapshot.GPUUUID("GPU-1"), list[0].UUID)
	for name, row := range map[string]struct {
		cluster snapshot.Cluster
		spared  string // the process of bob's on device 0, or of carol's on device 1
		at      snapshot.DeviceIndex
	}{
		"as it was":             {numbered("GPU-0", "GPU-1"), "carol", 1},
		"another index":         {numbered("GPU-1", "GPU-0"), "bob", 0},
		"gone":                  {numbered("GPU-0", "GPU-2"), "", 1},
		"of no index for now":   {numbered("GPU-0", ""), "carol", 1},
		"nor any other, either": {numbered(), "carol", 1},
	} {
		for _, list := range []policy.ExemptionList{list, list.Follow(row.cluster)} {
			left := foundIn(row.cluster, list, noon)
			require.Equal(t, row.spared != "bob", slices.Contains(left, "non-env-processes a bob"), name)
			require.Equal(t, row.spared != "carol", slices.Contains(left, "non-env-processes a carol"), name)
		}
		require.Equal(t, row.at, *list.Follow(row.cluster)[0].Device, name)
		require.Equal(t, snapshot.GPUUUID("GPU-1"), list.Follow(row.cluster)[0].UUID, name)
	}
	require.Equal(t, device(1), list[0].Device, "it is a value")
}

// A process of a user who can't be looked up may be an exempt user's.
func TestAUserWithoutAKnownName(t *testing.T) {
	uid := snapshot.UID(7)
	p := &snapshot.Process{PID: 1, UID: &uid, UserUnknown: true}
	exempted := policy.WithExemptions(everything(), policy.ExemptionList{exempt(policy.Who{User: "bob", Host: "a"})}, noon)
	_, there := exempted.Exempt(enforce.Subject{Host: "a", Process: p})
	_, elsewhere := exempted.Exempt(enforce.Subject{Host: "b", Process: p})
	require.True(t, there)
	require.False(t, elsewhere)

	exempted = policy.WithExemptions(everything(), policy.ExemptionList{exempt(policy.Who{User: "uid 7"})}, noon)
	_, named := exempted.Exempt(enforce.Subject{Host: "a", Process: &snapshot.Process{PID: 1, UID: &uid}})
	require.True(t, named)
}

// No claim makes a user exempt: neither an environment that is registered for an exempt user, nor root in a container.
func TestClaimsAreNotExempt(t *testing.T) {
	mallory, zero := snapshot.UID(1009), snapshot.UID(0)
	env := &snapshot.Environment{EID: "100", UID: 1001, Username: "bob"}
	exempted := policy.WithExemptions(everything(), policy.ExemptionList{exempt(policy.Who{User: "bob"}), exempt(policy.Who{User: "root"})}, noon)
	for _, s := range []enforce.Subject{
		{Host: "a", Process: &snapshot.Process{PID: 1, UID: &mallory, Username: "mallory", EID: "100"}, Environment: env},
		{Host: "a", Process: &snapshot.Process{PID: 1, UID: &mallory, EID: "100"}, Environment: env},
		{Host: "a", Process: &snapshot.Process{PID: 1, UID: &zero, Container: "c", Username: "root"}},
		{Host: "a", Environment: env},
		{Host: "a"},
		{Host: "a", Device: &snapshot.Device{}},
		{},
	} {
		_, exempt := exempted.Exempt(s)
		require.False(t, exempt, s)
	}
}

// What is exempt for a user holds for containers that the user is proved to have started: in others one can be anybody.
func TestContainersAreNotExemptByTheirUid(t *testing.T) {
	zero, bob, mallory := snapshot.UID(0), snapshot.UID(1001), snapshot.UID(1009)
	env := &snapshot.Environment{EID: "100", UID: bob, Username: "bob"}
	started := func(by *snapshot.UID, user snapshot.Username) *snapshot.ContainerInfo {
		return &snapshot.ContainerInfo{Name: "web", UID: by, User: user, Proof: snapshot.ProofRecord}
	}
	exempted := policy.WithExemptions(everything(), policy.ExemptionList{exempt(policy.Who{User: "bob"}), exempt(policy.Who{User: "root"})}, noon)
	for name, row := range map[string]struct {
		process snapshot.Process
		exempt  bool
	}{
		"bob started it":          {snapshot.Process{UID: &zero, Username: "root", ContainerInfo: started(&bob, "bob")}, true},
		"bob's own engine":        {snapshot.Process{UID: &bob, Username: "bob", ContainerInfo: &snapshot.ContainerInfo{UID: &bob, User: "bob", Proof: snapshot.ProofRootless}}, true},
		"as bob":                  {snapshot.Process{UID: &bob, Username: "bob", ContainerInfo: &snapshot.ContainerInfo{Name: "web"}}, false},
		"as bob, with his id":     {snapshot.Process{UID: &bob, Username: "bob", EID: "100", ContainerInfo: &snapshot.ContainerInfo{Name: "web", EID: "100"}}, false},
		"as root, with his id":    {snapshot.Process{UID: &zero, Username: "root", EID: "100", ContainerInfo: &snapshot.ContainerInfo{Name: "web"}}, false},
		"an engine that is mute":  {snapshot.Process{UID: &bob, Username: "bob", ContainerInfo: &snapshot.ContainerInfo{Unknown: true}}, false},
		"mallory started it":      {snapshot.Process{UID: &bob, Username: "bob", EID: "100", ContainerInfo: started(&mallory, "mallory")}, false},
		"root started it, proved": {snapshot.Process{UID: &zero, Username: "root", ContainerInfo: started(&zero, "root")}, false},
		"on an older host":        {snapshot.Process{UID: &zero, Username: "root", EID: "100"}, false},
	} {
		row.process.Container = "abc"
		_, exempt := exempted.Exempt(enforce.Subject{Host: "a", Process: &row.process, Environment: env})
		require.Equal(t, row.exempt, exempt, name)
	}
}
