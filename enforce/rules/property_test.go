package rules_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// world is a random cluster and a random policy.
type world struct {
	*rand.Rand
	cluster snapshot.Cluster
	policy  stated
}

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 7))}
	for h := range 1 + w.IntN(4) {
		w.cluster.Hosts = append(w.cluster.Hosts, w.host(snapshot.Hostname(fmt.Sprintf("h%d", h))))
	}
	w.policy = w.rules()
	return w
}

func (w *world) coin() bool { return w.IntN(2) == 0 }

func (w *world) host(name snapshot.Hostname) snapshot.Host {
	if w.IntN(8) == 0 {
		return snapshot.Host{Name: name, Err: errDown}
	}
	s := &snapshot.Snapshot{}
	for i := range w.IntN(6) {
		e := snapshot.Environment{
			EID: snapshot.EnvID(fmt.Sprint(10 + i)), UID: snapshot.UID(w.IntN(3)), Username: snapshot.Username([]string{"alice", "bob", ""}[w.IntN(3)]),
			Creation: w.date(), OwnerMismatch: w.IntN(9) == 0,
		}
		if w.coin() {
			e.Config.GPUMemory = snapshot.MiB(int64(w.IntN(3000)))
		}
		s.Environments = append(s.Environments, e)
	}
	for i := range w.IntN(6) {
		s.Devices = append(s.Devices, w.device(snapshot.DeviceIndex(i), s.Environments))
	}
	for i := range w.IntN(12) {
		s.Processes = append(s.Processes, w.process(snapshot.PID(100+i), len(s.Devices)))
	}
	return snapshot.Host{Name: name, Snapshot: s}
}

func (w *world) date() snapshot.Date { return snapshot.DateOf(noon(-w.IntN(600))) }

func (w *world) device(index snapshot.DeviceIndex, envs []snapshot.Environment) snapshot.Device {
	d := snapshot.Device{Index: index, TotalMemory: snapshot.MiB(81559)}
	if w.IntN(8) > 0 {
		d.TotalMemory = snapshot.MiB(4000)
	}
	if w.coin() {
		d.Utilization = new(w.IntN(20))
	}
	for _, e := range envs {
		if w.IntN(3) == 0 {
			d.Attachments = append(d.Attachments, snapshot.Attachment{EID: e.EID, GPUMemory: e.Config.GPUMemory, Time: w.date()})
		}
	}
	return d
}

func (w *world) process(pid snapshot.PID, devices int) snapshot.Process {
	p := snapshot.Process{PID: pid, Start: snapshot.StartTime(pid), EID: snapshot.EnvID([]string{"", "10", "11", "12", "bogus"}[w.IntN(5)])}
	if w.IntN(8) == 0 {
		p.EID, p.EnvUnknown = "", true
	}
	if w.coin() {
		p.UID = new(snapshot.UID(w.IntN(3)))
	}
	for i := range devices {
		if w.IntN(3) == 0 {
			u := snapshot.DeviceUsage{Index: snapshot.DeviceIndex(i)}
			if w.IntN(8) > 0 {
				u.Memory = snapshot.MiB(int64(w.IntN(2000)))
			}
			p.Usage = append(p.Usage, u)
		}
	}
	return p
}

func (w *world) rules() stated {
	exemptPID, exemptEID, exemptDevice := snapshot.PID(100+w.IntN(24)), snapshot.EnvID(fmt.Sprint(10+w.IntN(12))), snapshot.DeviceIndex(w.IntN(12))
	p := stated{
		all:   enforce.Settings{NonEnvProcesses: w.coin(), EnvDevices: w.coin(), EnvMemory: w.coin(), Grace: time.Second, Kill: w.coin()},
		fleet: enforce.Fleet{PauseCaps: w.IntN(4) == 0, Limits: safety.Limits{Fleet: safety.Limit{Terminations: w.IntN(9)}}},
		exempt: func(s enforce.Subject) bool {
			return s.Process != nil && s.Process.PID == exemptPID || s.Environment != nil && s.Environment.EID == exemptEID ||
				s.Device != nil && s.Device.Index == exemptDevice
		},
	}
	if w.coin() {
		p.all.MaxDevices = new(w.IntN(4))
	}
	if w.coin() {
		p.all.MaxMemory = new(memory(int64(w.IntN(12)) * 1e9))
	}
	if w.coin() {
		p.all.MaxEnvs = new(w.IntN(3))
	}
	if w.coin() {
		p.all.Idle = &enforce.Idle{After: 4 * time.Minute, Below: w.IntN(10)}
	}
	if w.coin() {
		p.all.MaxDuration = time.Duration(w.IntN(600)) * time.Minute
	}
	if w.coin() {
		p.all.Warn = enforce.Warn{Cycles: w.IntN(3)}
	}
	if rules := enforce.Rules(); w.coin() {
		p.all.RuleWarns = map[enforce.Rule]enforce.Warn{rules[w.IntN(len(rules))]: {Cycles: w.IntN(3)}}
	}
	return p
}

// plans is what several cycles over the same cluster conclude.
func (w *world) plans(cluster snapshot.Cluster) []enforce.Plan {
	var memory controllerMemory
	var plans []enforce.Plan
	for minute := range 6 {
		plan := memory.Judge(w.policy, cluster, noon(minute))
		plan.Counts = nil // which points to all that was judged
		plans = append(plans, plan)
	}
	return plans
}

// items lists what a plan does, each thing with its host.
func items(plan enforce.Plan) []string {
	var list []string
	for _, o := range plan.Orders {
		for _, d := range o.Order.Detach {
			list = append(list, fmt.Sprintf("%s detach %s %s", o.Host, d.Device, d.Environment.EID))
		}
		for _, x := range o.Order.Terminate {
			list = append(list, fmt.Sprintf("%s end %d", o.Host, x.Process.PID))
		}
	}
	return list
}

var worlds = proctest.Cases(1500)

func TestPropertyTheSameClusterTwiceGivesTheSamePlan(t *testing.T) {
	for seed := range worlds {
		w := newWorld(seed)
		require.Equal(t, w.plans(w.cluster), w.plans(w.cluster), "world %d", seed)
	}
}

func TestPropertyNoFindingNoAction(t *testing.T) {
	acted := 0
	for seed := range worlds {
		w := newWorld(seed)
		w.policy.fleet.Limits = safety.Limits{} // which are apart: see TestLimits
		for _, plan := range w.plans(w.cluster) {
			said := map[string]bool{}
			for _, f := range plan.Findings {
				if f.Pending {
					continue
				}
				for _, p := range f.Terminate {
					said[fmt.Sprintf("%s %s end %d", f.ID, p.Host, p.PID)] = true
				}
				for _, d := range f.Detach {
					said[fmt.Sprintf("%s %s detach %s %s", f.ID, d.Host, d.Index, d.EID)] = true
				}
			}
			done := 0
			for _, o := range plan.Orders {
				for _, d := range o.Order.Detach {
					for _, id := range d.Because {
						done++
						require.True(t, said[fmt.Sprintf("%s %s detach %s %s", id, o.Host, d.Device, d.Environment.EID)], "world %d", seed)
					}
				}
				for _, x := range o.Order.Terminate {
					for _, id := range x.Because {
						done++
						require.True(t, said[fmt.Sprintf("%s %s end %d", id, o.Host, x.Process.PID)], "world %d", seed)
					}
				}
			}
			require.Equal(t, len(said), done, "world %d: and what is due is done", seed)
			acted += done
		}
	}
	require.Greater(t, acted, int(worlds), "these worlds are not all at peace")
}

func TestPropertyExemptIsNeverTouched(t *testing.T) {
	spared := 0
	for seed := range worlds {
		w := newWorld(seed)
		w.policy.all.Warn, w.policy.all.RuleWarns, w.policy.list = enforce.Warn{}, nil, randomCaps(w.Rand)
		exempt := w.policy.exempt
		for _, plan := range w.plans(w.cluster) {
			for _, o := range plan.Orders {
				for _, d := range o.Order.Detach {
					require.False(t, exempt(enforce.Subject{Host: o.Host, Environment: &d.Environment}), "world %d", seed)
					require.False(t, exempt(enforce.Subject{Host: o.Host, Device: &snapshot.Device{Index: d.Device}}), "world %d", seed)
					for _, p := range w.cluster.Hosts[int(o.Host[1]-'0')].Snapshot.Processes {
						isThere := p.EID == d.Environment.EID && p.UID != nil && *p.UID == d.Environment.UID && p.Uses(d.Device) != nil
						require.False(t, isThere && exempt(enforce.Subject{Host: o.Host, Process: &p}), "world %d: an exempt process loses it", seed)
					}
				}
				for _, x := range o.Order.Terminate {
					require.False(t, exempt(enforce.Subject{Host: o.Host, Process: &x.Process}), "world %d", seed)
					require.False(t, x.Process.EnvUnknown, "world %d: unknown is not outside", seed)
				}
			}
		}
		w.policy.exempt = nil
		spared += len(items(evaluate(w.policy, w.cluster, noon(0))))
		w.policy.exempt = exempt
		spared -= len(items(evaluate(w.policy, w.cluster, noon(0))))
	}
	require.Greater(t, spared, int(worlds/20), "exemptions make a difference in these worlds")
}

func TestPropertyNeverMoreThanTheExcess(t *testing.T) {
	over := 0
	for seed := range worlds {
		w := newWorld(seed)
		limit := w.IntN(4)
		w.policy = stated{all: enforce.Settings{MaxDevices: &limit}}
		w.forgetUIDs() // so that only attachments count, as with hosts of 1.4.3
		held := devicesOfUsers(w.cluster)
		taken := map[snapshot.Username]map[string]bool{}
		for _, o := range evaluate(w.policy, w.cluster, noon(0)).Orders {
			for _, d := range o.Order.Detach {
				user := d.Environment.Username
				if taken[user] == nil {
					taken[user] = map[string]bool{}
				}
				taken[user][fmt.Sprint(o.Host, d.Device)] = true
			}
		}
		for user, devices := range held {
			excess := max(0, len(devices)-limit)
			require.Len(t, taken[user], excess, "world %d, user %s", seed, user)
			over += excess
		}
		require.Empty(t, taken[""], "world %d: a user without a name", seed)
	}
	require.Greater(t, over, int(worlds/2))
}

// forgetUIDs makes hosts report no uids.
func (w *world) forgetUIDs() {
	for _, h := range w.cluster.Answered() {
		for i := range h.Snapshot.Processes {
			h.Snapshot.Processes[i].UID = nil
		}
	}
}

func devicesOfUsers(cluster snapshot.Cluster) map[snapshot.Username]map[string]bool {
	held := map[snapshot.Username]map[string]bool{"alice": {}, "bob": {}}
	for _, h := range cluster.Answered() {
		for _, d := range h.Snapshot.Devices {
			for _, a := range d.Attachments {
				if user := h.Snapshot.Environment(a.EID).Username; user != "" {
					held[user][fmt.Sprint(h.Name, d.Index)] = true
				}
			}
		}
	}
	return held
}

func TestPropertyAnUnreachableHostAddsNoAction(t *testing.T) {
	for seed := range worlds {
		w := newWorld(seed)
		w.policy.fleet.Limits = safety.Limits{} // caps that wait may bring a cycle within them
		more := snapshot.Cluster{Hosts: slices.Insert(slices.Clone(w.cluster.Hosts), w.IntN(len(w.cluster.Hosts)+1), snapshot.Host{Name: "gone", Err: errDown})}
		with, without := w.plans(more), w.plans(w.cluster)
		for i := range with {
			require.Subset(t, items(without[i]), items(with[i]), "world %d, cycle %d", seed, i)
		}
		// And what a host takes with it when it is lost is its own.
		lost := slices.Clone(w.cluster.Hosts)
		i := w.IntN(len(lost))
		lost[i] = snapshot.Host{Name: lost[i].Name, Err: errDown}
		require.Subset(t, endedOutsideCaps(evaluate(w.policy, w.cluster, noon(0))), endedOutsideCaps(evaluate(w.policy, snapshot.Cluster{Hosts: lost}, noon(0))), "world %d", seed)
	}
}

// endedOutsideCaps are the processes that end for another reason than what a user has on all hosts together.
func endedOutsideCaps(plan enforce.Plan) []string {
	var list []string
	for _, f := range plan.Findings {
		if f.Host == "" || f.Pending {
			continue
		}
		for _, p := range f.Terminate {
			list = append(list, fmt.Sprintf("%s %d", p.Host, p.PID))
		}
	}
	return list
}
