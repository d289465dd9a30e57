package enforce_test

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// divided is a fleet of which several controllers judge the hosts. What they tell each other
// is written and read as in a real fleet.
type divided struct {
	t       *testing.T
	policy  enforce.Policy
	order   map[snapshot.Hostname]int
	shards  []snapshot.Cluster
	memory  []enforce.Memory
	missing int // the number of a shard of which nothing is known; -1 for none
}

// divide puts each host of a world into one of some shards.
func (w *world) divide(t *testing.T) *divided {
	d := &divided{t: t, policy: w.policy, order: make(map[snapshot.Hostname]int), missing: -1}
	d.shards = make([]snapshot.Cluster, 1+w.IntN(4))
	d.memory = make([]enforce.Memory, len(d.shards))
	for i, h := range w.cluster.Hosts {
		d.order[h.Name] = i
		s := &d.shards[w.IntN(len(d.shards))]
		s.Hosts = append(s.Hosts, h)
	}
	return d
}

// judge judges a cycle, and returns the plan of all shards together.
func (d *divided) judge(minute int) enforce.Plan {
	var documents []*holdings.Shard
	var from []int
	rules := enforce.CapRules(d.policy, noon(minute))
	for i, cluster := range d.shards {
		if i == d.missing {
			rules.Missing += len(cluster.Hosts)
			continue
		}
		_, _, _, held := enforce.JudgeShard(d.policy, cluster, d.memory[i], noon(minute), enforce.Shard{Order: d.order})
		documents, from = append(documents, reread(d.t, held)), append(from, i)
	}
	decisions := holdings.Decide(documents, rules)
	var all enforce.Plan
	for n, i := range from {
		shard := enforce.Shard{Order: d.order, Decision: reread(d.t, &decisions[n])}
		plan, next, _, _ := enforce.JudgeShard(d.policy, d.shards[i], d.memory[i], noon(minute), shard)
		d.memory[i] = next
		all.Findings, all.Reports = append(all.Findings, plan.Findings...), append(all.Reports, plan.Reports...)
	}
	return all
}

// document is what controllers exchange.
type document[T any] interface {
	*T
	Check() error
}

// reread is a document as another controller reads it.
func reread[T any, D document[T]](t *testing.T, value D) D {
	data, err := json.Marshal(value)
	require.NoError(t, err)
	read := D(new(T))
	require.NoError(t, json.Unmarshal(data, read))
	require.NoError(t, read.Check())
	return read
}

// inOneOrder joins the parts of findings, and sorts what has no order across shards.
func inOneOrder(plan enforce.Plan) (findings []enforce.Finding, reports []enforce.HostReport) {
	joined := make(map[string]enforce.Finding)
	for _, f := range plan.Findings {
		if same, known := joined[f.ID]; known {
			f.Detach, f.Terminate = slices.Concat(same.Detach, f.Detach), slices.Concat(same.Terminate, f.Terminate)
			f.Stuck, f.UnderWay = slices.Concat(same.Stuck, f.Stuck), same.UnderWay+f.UnderWay
		}
		joined[f.ID] = f
	}
	for _, id := range slices.Sorted(maps.Keys(joined)) {
		f := joined[id]
		f.Detach, f.Terminate, f.Stuck = slices.Clone(f.Detach), slices.Clone(f.Terminate), slices.Clone(f.Stuck)
		slices.SortFunc(f.Detach, func(a, b enforce.DeviceRef) int {
			return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Index, b.Index), cmp.Compare(a.EID, b.EID))
		})
		byProcess := func(a, b enforce.ProcessRef) int {
			return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID))
		}
		slices.SortFunc(f.Terminate, byProcess)
		slices.SortFunc(f.Stuck, func(a, b enforce.StuckProcess) int { return byProcess(a.ProcessRef, b.ProcessRef) })
		findings = append(findings, f)
	}
	reports = slices.Clone(plan.Reports)
	slices.SortFunc(reports, func(a, b enforce.HostReport) int { return cmp.Compare(a.Host, b.Host) })
	return findings, reports
}

// newFleet is a world with caps, more hosts and processes that can't be ended.
func newFleet(seed uint64) *world {
	w := newWorld(seed)
	for i := range 4 {
		w.cluster.Hosts = append(w.cluster.Hosts, w.host(snapshot.Hostname("more"+itoa(i))))
	}
	w.policy.fleet.Limits = safety.Limits{} // each controller has limits of its own
	if w.policy.all.MaxDevices == nil && w.policy.all.MaxMemory == nil && w.policy.all.MaxEnvs == nil {
		w.policy.all.MaxDevices = ptr(w.IntN(9))
	}
	return w
}

// stuck are some processes of hosts that can't be ended.
func (w *world) stuck() map[snapshot.ProcessKey]string {
	list := make(map[snapshot.ProcessKey]string)
	for _, h := range w.cluster.Answered() {
		for _, p := range h.Snapshot.Processes {
			if w.IntN(9) == 0 {
				list[snapshot.ProcessKey{Host: h.Name, PID: p.PID, Start: p.Start}] = "it ignores SIGTERM"
			}
		}
	}
	return list
}

// underWay are the reports that hosts are still carrying out: about half of those of a plan.
func underWay(plan enforce.Plan, minute int) (list []enforce.HostReport) {
	for _, r := range plan.Reports {
		if (len(r.Host)+minute+int(r.Host[len(r.Host)-1]))%2 == 0 {
			list = append(list, r)
		}
	}
	return list
}

func TestPropertyShardsFindWhatTheWholeFleetDoes(t *testing.T) {
	capped, acted := 0, 0
	for seed := range worlds / 2 {
		w := newFleet(seed)
		d := w.divide(t)
		var whole controllerMemory
		whole.Stuck = w.stuck()
		for i := range d.memory {
			d.memory[i].Stuck = whole.Stuck
		}
		cluster := w.cluster
		if w.IntN(3) == 0 { // and a shard of which nothing is known counts as hosts that did not answer
			d.missing = w.IntN(len(d.shards))
			cluster.Hosts = slices.Clone(cluster.Hosts)
			for i, h := range cluster.Hosts {
				if slices.ContainsFunc(d.shards[d.missing].Hosts, func(one snapshot.Host) bool { return one.Name == h.Name }) {
					cluster.Hosts[i] = snapshot.Host{Name: h.Name, Err: errDown}
				}
			}
		}
		for minute := range 4 {
			one := whole.Judge(w.policy, cluster, noon(minute))
			wantFindings, wantReports := inOneOrder(one)
			findings, reports := inOneOrder(d.judge(minute))
			require.Equal(t, wantFindings, findings, "world %d, minute %d", seed, minute)
			require.Equal(t, wantReports, reports, "world %d, minute %d", seed, minute)
			whole.UnderWay = underWay(one, minute)
			for i := range d.memory {
				d.memory[i].UnderWay = whole.UnderWay
			}
			for _, f := range findings {
				if f.Count != nil && f.Host == "" {
					capped++
					if !f.Pending {
						acted += len(f.Detach)
					}
				}
			}
		}
	}
	require.Greater(t, capped, int(worlds/2))
	require.Greater(t, acted, int(worlds/2))
}

// TestWithoutADecisionNoCapActs: and what is known of the findings stays.
func TestWithoutADecisionNoCapActs(t *testing.T) {
	kept := 0
	for seed := range worlds / 3 {
		w := newFleet(seed)
		d := w.divide(t)
		d.judge(0)
		for i, cluster := range d.shards {
			plan, next, events, held := enforce.JudgeShard(w.policy, cluster, d.memory[i], noon(1), enforce.Shard{Order: d.order})
			for _, f := range plan.Findings {
				require.NotContains(t, []enforce.Rule{enforce.RuleMaxDevicesPerUser, enforce.RuleMaxEnvsPerUser, enforce.RuleMaxMemoryPerUser}, f.Rule, "world %d", seed)
			}
			for id, known := range d.memory[i].Findings {
				if known.Host == "" {
					kept++
					require.Equal(t, known, next.Findings[id])
					require.Equal(t, d.memory[i].Present[id], next.Present[id])
				}
			}
			said := slices.ContainsFunc(events, func(e enforce.Event) bool {
				return e.Kind == enforce.EventNote && e.Text == "caps per user are not applied: there is no recent decision for all shards"
			})
			require.Equal(t, len(held.Users) > 0, said, "world %d", seed)
		}
	}
	require.Positive(t, kept)
}
