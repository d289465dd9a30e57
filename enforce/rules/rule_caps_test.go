package rules_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/rules"
	"github.com/seed-3119e985/genv/snapshot"
)

// noEnvironment finds none.
func noEnvironment(snapshot.Hostname, snapshot.EnvID) *snapshot.Environment { return nil }

// TestAdviceOfACap: the advice names what the cap would take, since genv detach alone detaches all.
func TestAdviceOfACap(t *testing.T) {
	for cluster, want := range map[string]string{
		"a | env 7 alice u1001 | dev 0 7@01 | dev 1 7@02 | dev 2 7@03":                                "genv detach --index 1,2 in the shell of environment 7.",
		"a | env 7 alice u1001 | dev 0 7@01 | dev 2 7@03 | proc 5 7 u1001 0:1 | proc 6 7 u1001 2:1":   "kill 6; genv detach --index 2 in the shell of environment 7.",
		"a | env 7 alice u1001 | dev 0 7@01\nb | env 8 alice u1001 | dev 3 8@03 | proc 5 8 u1001 3:1": "genv detach --index 0 in the shell of environment 7 on a.",
	} {
		policy := stated{all: enforce.Settings{MaxDevices: new(1), Warn: enforce.Warn{For: time.Minute}}}
		warned, memory, _ := rules.Judge(policy, parseCluster(t, cluster), enforce.Memory{}, noon(0))
		require.Len(t, warned.Findings, 1)
		require.Equal(t, "Give back GPUs that you need less, such as these: "+want, warned.Findings[0].Advice(notify.NewRecipients(parseCluster(t, cluster)).Environment), cluster)
		acted, _, _ := rules.Judge(policy, parseCluster(t, cluster), memory, noon(1))
		require.Len(t, acted.Findings, 1)
		require.Equal(t, enforce.DecisionAct, acted.Findings[0].Decision())
		require.Equal(t, "Before you take more GPUs, end jobs that you need less; in the shell of an environment genv detach --index N gives a GPU back.",
			acted.Findings[0].Advice(noEnvironment), "nothing is left to give back")
	}
	outside := enforce.Finding{Pending: true, Rule: enforce.RuleMaxMemoryPerUser, Terminate: []enforce.ProcessRef{{Host: "a", PID: 5}}}
	require.Equal(t, "Give back GPUs that you need less, such as these: kill 5.", outside.Advice(noEnvironment), "there is nothing to detach")
	hours := enforce.Finding{Pending: true, Rule: enforce.RuleCaps, Cap: &enforce.CapExcess{Counts: "gpu-hours", Until: noon(0)}}
	require.Equal(t, "Save your work, and end it: you may have these GPUs again from "+snapshot.When(noon(0))+".", hours.Advice(noEnvironment))
	none := enforce.Finding{Rule: enforce.RuleCaps, Cap: &enforce.CapExcess{Counts: "gpus", Used: 1, Until: noon(0)}}
	require.Equal(t, hours.Advice(noEnvironment), none.Advice(noEnvironment), "0 GPUs until then")
	none.Cap.WaitsFor = "alice waits for 1 GPU"
	require.NotEqual(t, hours.Advice(noEnvironment), none.Advice(noEnvironment), "more than alice needs may stay")
	none.Cap.Limit, none.Cap.WaitsFor = 1, ""
	require.NotEqual(t, hours.Advice(noEnvironment), none.Advice(noEnvironment))
	require.NotRegexp(t, "genv detach($|[^ ]| [^-])", enforce.RuleMaxDevicesPerUser.Advice())
}

// After genv run other things help than in a shell, and an environment has the name that its owner gave it.
func TestAdviceByEnvironment(t *testing.T) {
	device := func(eid snapshot.EnvID, index snapshot.DeviceIndex) enforce.DeviceRef {
		return enforce.DeviceRef{Host: "a", EID: eid, Index: index}
	}
	find := func(_ snapshot.Hostname, eid snapshot.EnvID) *snapshot.Environment {
		return map[snapshot.EnvID]*snapshot.Environment{
			"1": {EID: "1", Config: snapshot.EnvConfig{Name: "train"}},
			"2": {EID: "2", Config: snapshot.EnvConfig{Name: "night job"}, Runs: true},
			"3": {EID: "3", Runs: true},
			"4": {EID: "4", Config: snapshot.EnvConfig{Name: "train"}},
		}[eid]
	}
	lost := []enforce.ProcessRef{{Host: "a", PID: 7}, {Host: "a", PID: 12}}
	const these = "Give back GPUs that you need less, such as these: "
	for _, tt := range []struct {
		f    enforce.Finding
		want string
	}{
		{enforce.Finding{Rule: enforce.RuleCaps, Pending: true, Detach: []enforce.DeviceRef{device("1", 10), device("1", 9)}}, these + "genv detach --index 9,10 in the shell of environment train."},
		{enforce.Finding{Rule: enforce.RuleCaps, Pending: true, Detach: []enforce.DeviceRef{device("1", 0), device("4", 1)}}, these + "genv detach --index 0 in the shell of environment train; genv detach --index 1 in the shell of environment train."},
		{enforce.Finding{Rule: enforce.RuleCaps, Pending: true, Detach: []enforce.DeviceRef{device("2", 0), device("3", 1)}}, these + `end the command of environment "night job"; end the command of environment 3.`},
		{enforce.Finding{Rule: enforce.RuleCaps, Pending: true, Detach: []enforce.DeviceRef{device("2", 0)}, Terminate: lost}, these + "kill 7 12."},
		{enforce.Finding{Rule: enforce.RuleMaxDevicesPerUser, Pending: true, Detach: []enforce.DeviceRef{device("9", 0)}}, these + "genv detach --index 0 in the shell of environment 9."},
		{enforce.Finding{Rule: enforce.RuleMaxDuration, EID: "1", Host: "a"}, enforce.RuleMaxDuration.Advice()},
		{enforce.Finding{Rule: enforce.RuleMaxDuration, EID: "2", Host: "a"}, "Save your work: what goes on using the GPU may be ended. Start it again afterwards with genv run."},
		{enforce.Finding{Rule: enforce.RuleEnvDevices, EID: "2", Host: "a"}, "End it, and start it with as many GPUs as it uses: genv run --gpus N."},
		{enforce.Finding{Rule: enforce.RuleEnvMemory, EID: "2", Host: "a"}, "Use less memory on that GPU, or start it again with more: genv run --gpu-memory AMOUNT."},
		{enforce.Finding{Rule: enforce.RuleIdle, EID: "2", Host: "a", Warn: enforce.Warn{For: time.Hour}}, "Your processes stay until somebody else is given it, or until they compute there: then they end after 1h. Compute there before that, or end it."},
		{enforce.Finding{Rule: enforce.RuleNonEnvProcesses, Host: "a", PID: 3}, "End it, and start it in an environment: genv run --gpus 1 python train.py."},
		{enforce.Finding{Rule: "of-another-version", Host: "a", PID: 3, Pending: true}, "Ask your administrator."},
	} {
		require.Equal(t, tt.want, tt.f.Advice(find), tt.f.Rule)
	}
}

// TestAdviceAfter: who ran it by hand has nothing to detach, and what was idle and ended doesn't stay.
func TestAdviceAfter(t *testing.T) {
	require.Equal(t, "Before you take more GPUs, end jobs that you need less.", enforce.RuleCaps.AdviceAfter(""))
	require.Equal(t, enforce.RuleCaps.Advice(), enforce.RuleCaps.AdviceAfter("7"))
	require.Equal(t, "Start it again when it computes: what keeps a GPU without computing is ended.", enforce.RuleIdle.AdviceAfter(""))
	require.Equal(t, enforce.RuleEnvMemory.Advice(), enforce.RuleEnvMemory.AdviceAfter(""))
}

// A warning names exactly what goes when it is due: no job is threatened where another process ends anyway.
func TestForecast(t *testing.T) {
	const both = "a | env 1 alice u1001 | dev 0 1@01 | dev 1 | proc 5 1 u1001 0:1 | proc 6 1 u1001 1:1"
	for _, tt := range []struct {
		name     string
		cluster  string
		settings enforce.Settings
		want     []snapshot.PID // that end because of a cap or a capacity
	}{
		{"a process on a device that isn't attached ends anyway", both, enforce.Settings{EnvDevices: true, MaxDevices: new(1)}, nil},
		{"so it does for a cap on memory", strings.ReplaceAll(strings.ReplaceAll(both, "alice u1001", "alice u1001 3mi"), "1:1", "1:2"), enforce.Settings{EnvDevices: true, MaxMemory: new(memory(3 << 20))}, nil},
		{"no other rule ends it", both, enforce.Settings{MaxDevices: new(1)}, []snapshot.PID{5}},
		{"one ends anyway, and one more has to", both + " | dev 2 1@02 | proc 7 1 u1001 2:1", enforce.Settings{EnvDevices: true, MaxDevices: new(1)}, []snapshot.PID{7}},
		{
			"it ends anyway, and so the environment is within its capacity", "a | env 1 alice u1001 4g | dev 0 1@01 | dev 1 | proc 5 1 u1001 0:2000 | proc 6 1 u1001 0:3000 1:1",
			enforce.Settings{EnvDevices: true, EnvMemory: true},
			[]snapshot.PID{6},
		},
		{"an idle device is detached anyway", "a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02 | proc 5 1 u1001 0:1", enforce.Settings{Idle: &enforce.Idle{}, MaxDevices: new(1)}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.settings.Warn = enforce.Warn{For: 10 * time.Minute}
			policy, cluster, now := stated{all: tt.settings}, parseCluster(t, tt.cluster), time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
			warned, memory, _ := rules.Judge(policy, cluster, enforce.Memory{}, now)
			require.Empty(t, warned.Orders)
			acted, _, _ := rules.Judge(policy, cluster, memory, now.Add(10*time.Minute))
			done := make(map[string]enforce.Finding)
			for _, f := range acted.Findings {
				done[f.ID] = f
			}
			for _, f := range warned.Findings {
				require.Equal(t, done[f.ID].Terminate, f.Terminate, f.ID)
				require.Equal(t, done[f.ID].Detach, f.Detach, f.ID)
			}
			var ends []snapshot.PID
			for _, f := range warned.Findings {
				for _, ref := range f.Terminate {
					if f.Rule != enforce.RuleEnvDevices {
						ends = append(ends, ref.PID)
					}
				}
			}
			require.Equal(t, tt.want, ends)
		})
	}
}

// A cap takes no more than the excess where processes use unattached devices: ending one frees all of them.
func TestUnattachedDevicesAndCaps(t *testing.T) {
	const (
		host  = "a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02 | dev 2 | dev 3 | dev 4 | dev 5 "
		empty = "a | env 1 alice u1001 | dev 0 | dev 1 | dev 2 | dev 3 "
		one   = " | boot 7 | env 1 alice u1001 | dev 0 | dev 1 | proc 5 1 u1001 0:1"
	)
	runPlans(t, []planRow{
		{"two attached, and a process on two others", capOf(1), host + "| proc 5 1 u1001 2:1 3:1", "a detach 1 1; a end 5"},
		{"two attached, and a process on three others", capOf(1), host + "| proc 5 1 u1001 2:1 3:1 4:1", "a detach 1 1; a end 5"},
		{"two attached, and processes on others", capOf(2), host + "| proc 5 1 u1001 2:1 3:1 | proc 6 1 u1001 4:1", "a detach 0 1; a detach 1 1; a end 6"},
		{"idle devices are enough", capOf(2), host + "| proc 5 1 u1001 2:1 3:1", "a detach 0 1; a detach 1 1"},
		{"the newest idle device is enough", capOf(3), host + "| proc 5 1 u1001 2:1 3:1", "a detach 1 1"},
		{"no device is left to keep", capOf(0), host + "| proc 5 1 u1001 2:1 3:1", "a detach 0 1; a detach 1 1; a end 5"},
		{"a process takes more than the excess", capOf(2), empty + "| proc 5 1 u1001 0:1 1:1 2:1", "a end 5"},
		{"another one takes no more", capOf(3), empty + "| proc 5 1 u1001 0:1 1:1 | proc 6 1 u1001 2:1 | proc 7 1 u1001 3:1", "a end 6"},
		{"two that take more, and one that doesn't", capOf(2), empty + "| proc 5 1 u1001 0:1 1:1 2:1 | proc 6 1 u1001 3:1", "a end 5"},
		{"the larger one is enough alone", capOf(1), empty + "| proc 5 1 u1001 0:1 | proc 6 1 u1001 1:1 2:1 3:1", "a end 6"},
		{"of those that take more, the one that takes least", capOf(4), empty + "| dev 4 | proc 5 1 u1001 0:1 1:1 2:1 | proc 6 1 u1001 3:1 4:1", "a end 6"},
		{"the one job that is enough ends, with what is attached to it", capOf(1), host + "| dev 6 | env 2 alice u1001 | proc 5 1 u1001 0:1 2:1 | proc 6 1 u1001 1:1", "a detach 0 1; a end 5"},
		{"a device of two processes is free when both end", capOf(1), empty + "| proc 5 1 u1001 0:1 1:1 | proc 6 1 u1001 1:1 2:1", "a end 5; a end 6"},
		{"what hosts say of their boot doesn't prove that they are one", capOf(1), "a" + one + "\nb" + one, "a end 5"},
		{"on several hosts", capOf(1), "a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02\nb | env 1 alice u1001 | dev 0 | dev 1 | proc 5 1 u1001 0:1 1:1", "a detach 1 1; b end 5"},

		{"at the cap", capOf(4), host + "| proc 5 1 u1001 2:1 3:1", ""},
		{"at the cap with processes alone", capOf(2), empty + "| proc 5 1 u1001 0:1 1:1", ""},
		{"two processes on the same devices", capOf(2), empty + "| proc 5 1 u1001 0:1 1:1 | proc 6 1 u1001 0:1 1:1", ""},
		{"another user's process", capOf(2), host + "| env 2 bob u1002 | proc 5 2 u1002 2:1", ""},
		{"a process outside of any environment", capOf(2), host + "| proc 5 - u1001 2:1 3:1", ""},
		{"genv 1.4.3 reports no uids: attachments count alone", capOf(2), host + "| proc 5 1 2:1 3:1", ""},
		{"and are taken alone", capOf(1), host + "| proc 5 1 2:1 3:1", "a detach 1 1"},
		{"a process that uses both ends there", capOf(1), host + "| proc 5 1 1:1 3:1 | proc 6 1 0:1", "a detach 1 1; a end 5"},
	})
}

// What is said to users is 1.4.3's line; how many devices are attached is added to it.
func TestHowManyDevicesAreAttached(t *testing.T) {
	cluster := parseCluster(t, "a | env 1 alice u1001 | dev 0 1@01 | dev 1 1@02\nb | env 1 alice u1001 | dev 0 | dev 1 | proc 5 1 u1001 0:1 1:1")
	f := evaluate(stated{all: enforce.Settings{MaxDevices: new(1)}}, cluster, time.Time{}).Findings[0]
	require.Equal(t, enforce.CountExcess{Used: 4, Limit: 1, Hosts: 2, Attached: 2, Unattached: 2}, *f.Count)
	require.Equal(t, "User alice is using 4 devices on 2 hosts which is 3 more than the maximum allowed", f.String())
}

// A cap of memory gives back as well: the busiest and the oldest first.
func TestWhatACapOfMemoryGivesBack(t *testing.T) {
	const host = "a | env 1 alice u1001 1000mi | dev 0 1@01 | dev 1 1@02 | dev 2 | dev 3 | proc 5 1 u1001 2:1000 3:1000"
	for limit, want := range map[int64]string{
		4000: "",
		3000: "a detach 1 1",
		2000: "a detach 0 1; a detach 1 1",
		1000: "a detach 1 1; a end 5",
		999:  "a detach 0 1; a detach 1 1; a end 5",
	} {
		plan := evaluate(stated{all: enforce.Settings{MaxMemory: new(memory(limit << 20))}}, parseCluster(t, host), time.Time{})
		require.Equal(t, want, planText(plan), "%d MiB", limit)
	}
}

// possessions are what one user has: devices that are attached, and those that each process uses.
type possessions struct {
	attached  map[string]bool
	processes map[string][]string
}

// randomFleet is one in which the processes of two users use what they are attached to, and what not.
func randomFleet(r *rand.Rand) (snapshot.Cluster, map[snapshot.Username]*possessions) {
	users := []snapshot.Username{"alice", "bob"}
	all := map[snapshot.Username]*possessions{}
	for _, user := range users {
		all[user] = &possessions{map[string]bool{}, map[string][]string{}}
	}
	var c snapshot.Cluster
	for h := range 1 + r.IntN(3) {
		s, name := &snapshot.Snapshot{}, snapshot.Hostname(fmt.Sprint("h", h))
		for i, user := range users {
			s.Environments = append(s.Environments, snapshot.Environment{EID: snapshot.EnvID(user), UID: snapshot.UID(1001 + i), Username: user})
		}
		for i := range 1 + r.IntN(5) {
			d := snapshot.Device{Index: snapshot.DeviceIndex(i), TotalMemory: snapshot.MiB(81559), Name: []string{"NVIDIA A100", "B200", ""}[r.IntN(3)]}
			for _, user := range users {
				if r.IntN(4) == 0 {
					d.Attachments = append(d.Attachments, snapshot.Attachment{EID: snapshot.EnvID(user), Time: snapshot.DateOf(noon(-r.IntN(600)))})
					all[user].attached[fmt.Sprint(name, "/", i)] = true
				}
			}
			s.Devices = append(s.Devices, d)
		}
		for i := range r.IntN(5) {
			n := r.IntN(len(users))
			p := snapshot.Process{PID: snapshot.PID(100 + i), Start: 1, EID: snapshot.EnvID(users[n]), UID: new(snapshot.UID(1001 + n))}
			key, of := fmt.Sprint(name, " ", p.PID), all[users[n]]
			for k := range s.Devices {
				if r.IntN(3) == 0 {
					p.Usage = append(p.Usage, snapshot.DeviceUsage{Index: snapshot.DeviceIndex(k)})
					of.processes[key] = append(of.processes[key], fmt.Sprint(name, "/", k))
				}
			}
			s.Processes = append(s.Processes, p)
		}
		c.Hosts = append(c.Hosts, snapshot.Host{Name: name, Snapshot: s})
	}
	return c, all
}

// devices are those that a user has.
func (p *possessions) devices() []string {
	has := maps.Clone(p.attached)
	for _, used := range p.processes {
		for _, d := range used {
			has[d] = true
		}
	}
	return slices.Sorted(maps.Keys(has))
}

// without is what a user has after losing devices, and the processes on them.
func (p *possessions) without(lost []string) *possessions {
	left := &possessions{maps.Clone(p.attached), maps.Clone(p.processes)}
	gone := func(d string) bool { return slices.Contains(lost, d) }
	maps.DeleteFunc(left.attached, func(d string, _ bool) bool { return gone(d) })
	maps.DeleteFunc(left.processes, func(_ string, used []string) bool { return slices.ContainsFunc(used, gone) })
	return left
}

// after is what a user has after a plan, and what is to be done to the user.
func (p *possessions) after(plan enforce.Plan, user snapshot.Username) (left *possessions, lost []string) {
	left = p.without(nil)
	for _, o := range plan.Orders {
		for _, d := range o.Order.Detach {
			if d.Environment.Username == user {
				lost = append(lost, fmt.Sprint(o.Host, "/", d.Device))
				delete(left.attached, lost[len(lost)-1])
			}
		}
		for _, x := range o.Order.Terminate {
			if x.Process.EID == snapshot.EnvID(user) {
				lost = append(lost, fmt.Sprint(o.Host, " ", x.Process.PID))
				delete(left.processes, lost[len(lost)-1])
			}
		}
	}
	return left, lost
}

// with is what a user has if attachments and processes are given back.
func (p *possessions) with(back []string, before *possessions) *possessions {
	has := p.without(nil)
	for _, name := range back {
		if used, isProcess := before.processes[name]; isProcess {
			has.processes[name] = used
		} else {
			has.attached[name] = true
		}
	}
	return has
}

// most is the most devices, and at most limit, that a user has after any choice from a list.
func most(list []string, limit int, after func(some []string) *possessions) (best int) {
	for set := range 1 << len(list) {
		var some []string
		for i := range list {
			if set>>i&1 == 1 {
				some = append(some, list[i])
			}
		}
		if n := len(after(some).devices()); n <= limit {
			best = max(best, n)
		}
	}
	return best
}

// The plan is compared with all ways of giving back what it takes, and with all ways of taking devices.
func TestPropertyACapLeavesWhatItAllows(t *testing.T) {
	over, exact, less := 0, 0, 0
	for seed := range worlds {
		r := rand.New(rand.NewPCG(seed, 11))
		limit := r.IntN(5)
		cluster, all := randomFleet(r)
		plan := evaluate(stated{all: enforce.Settings{MaxDevices: &limit}}, cluster, noon(0))
		for user, before := range all {
			had := before.devices()
			after, lost := before.after(plan, user)
			kept := len(after.devices())
			if len(had) <= limit {
				require.Empty(t, lost, "world %d: %s is not over the cap", seed, user)
				continue
			}
			over++
			require.LessOrEqual(t, kept, limit, "world %d, %s", seed, user)
			back := most(lost, limit, func(some []string) *possessions { return after.with(some, before) })
			require.Equal(t, back, kept, "world %d: something could be given back to %s", seed, user)
			best := most(had, limit, before.without)
			if kept == limit {
				exact++
			} else if kept < best {
				less++
			}
		}
	}
	require.Greater(t, over, int(worlds/2))
	require.Greater(t, exact, over*9/10)
	require.LessOrEqual(t, less, over/200, "which of several processes end is chosen one after the other")
}
