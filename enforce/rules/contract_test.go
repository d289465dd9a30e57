package rules_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// pids lists whom a plan terminates, by host.
func pids(plan enforce.Plan) map[snapshot.Hostname][]snapshot.PID {
	byHost := make(map[snapshot.Hostname][]snapshot.PID)
	for _, o := range plan.Orders {
		for _, t := range o.Order.Terminate {
			byHost[o.Host] = append(byHost[o.Host], t.Process.PID)
		}
	}
	return byHost
}

// Before the caps we terminate what 1.4.3 recorded or, for memory, what an independent reading of the contract says.
func TestRecordedTerminations(t *testing.T) {
	same := 0
	for _, c := range recordedCases(t) {
		t.Run(fmt.Sprint(c.Case), func(t *testing.T) {
			policy, cluster := c.policy(), c.cluster
			policy.all.MaxDevices, policy.asked = nil, nil
			want := make(map[snapshot.Hostname][]snapshot.PID)
			for _, h := range cluster.Hosts {
				if expected := terminationsByContract(policy.all, h.Snapshot); len(expected) > 0 {
					want[h.Name] = expected
				}
			}
			got := pids(evaluate(policy, cluster, time.Time{}))
			require.Equal(t, want, got)
			if !policy.all.EnvMemory && (!policy.all.NonEnvProcesses || len(unregistered(cluster)) == 0) {
				require.Equal(t, c.TerminateBeforeCap, got, "1.4.3 and the contract say the same here")
				same++
			}
		})
	}
	require.Greater(t, same, 20, "enough cases must compare with 1.4.3 itself")
}

// terminationsByContract reads contract.md word for word, without any of the package's own code: slow and plain.
func terminationsByContract(policy enforce.Settings, s *snapshot.Snapshot) []snapshot.PID {
	dead := map[snapshot.PID]bool{}
	for _, p := range s.Processes {
		env := s.Environment(p.EID)
		if policy.NonEnvProcesses && env == nil {
			dead[p.PID] = true
		}
		for _, u := range p.Usage {
			if policy.EnvDevices && env != nil && s.Device(u.Index).Attachment(p.EID) == nil {
				dead[p.PID] = true
			}
		}
	}
	for _, e := range s.Environments {
		for _, d := range s.Devices {
			if a := d.Attachment(e.EID); policy.EnvMemory && a != nil && a.GPUMemory.Known() {
				relieveByContract(s, e.EID, d.Index, a.GPUMemory.Bytes(), dead)
			}
		}
	}
	var list []snapshot.PID
	for pid := range dead {
		list = append(list, pid)
	}
	slices.Sort(list)
	return list
}

func relieveByContract(s *snapshot.Snapshot, eid snapshot.EnvID, index snapshot.DeviceIndex, capacity int64, dead map[snapshot.PID]bool) {
	for {
		used := int64(0)
		for _, p := range s.Processes {
			if u := p.Uses(index); p.EID == eid && u != nil && !dead[p.PID] {
				used += u.Memory.Bytes()
			}
		}
		if used <= capacity {
			return
		}
		var smallest, largest snapshot.PID
		var least, most int64
		for _, p := range s.Processes {
			u := p.Uses(index)
			if p.EID != eid || u == nil || dead[p.PID] {
				continue
			}
			size := u.Memory.Bytes()
			if size >= used-capacity && (smallest == 0 || size < least || size == least && p.PID > smallest) {
				smallest, least = p.PID, size
			}
			if largest == 0 || size > most || size == most && p.PID > largest {
				largest, most = p.PID, size
			}
		}
		if smallest != 0 {
			dead[smallest] = true
		} else {
			dead[largest] = true
		}
	}
}

// A cap takes never more than the excess, idle devices first, then those that end anyway, and touches no other process.
func TestCapsFollowTheContract(t *testing.T) {
	caps := 0
	for _, c := range recordedCases(t) {
		t.Run(fmt.Sprint(c.Case), func(t *testing.T) {
			policy, cluster := c.policy(), c.cluster
			without := policy
			without.all.MaxDevices, without.asked = nil, nil
			before := pids(evaluate(without, cluster, time.Time{}))
			plan := evaluate(policy, cluster, time.Time{})
			allowed := map[enforce.ProcessRef]bool{}
			for host, list := range before {
				for _, pid := range list {
					allowed[enforce.ProcessRef{Host: host, PID: pid}] = true
				}
			}
			detached := map[enforce.DeviceRef]bool{}
			for _, f := range plan.Findings {
				if f.Rule == enforce.RuleMaxDevicesPerUser {
					caps++
					checkCap(t, cluster, f, before)
					for _, p := range f.Terminate {
						allowed[p] = true
					}
					for _, d := range f.Detach {
						detached[d] = true
					}
				}
			}
			got := 0
			for host, list := range pids(plan) {
				for _, pid := range list {
					require.True(t, allowed[enforce.ProcessRef{Host: host, PID: pid}], "%s %d", host, pid)
					got++
				}
			}
			require.Len(t, allowed, got, "every process of a finding is in an order")
			for _, o := range plan.Orders {
				for _, d := range o.Order.Detach {
					ref := enforce.DeviceRef{Host: o.Host, Index: d.Device, EID: d.Environment.EID}
					require.True(t, detached[ref], "%v", ref)
					delete(detached, ref)
				}
			}
			require.Empty(t, detached, "every detachment of a finding is in an order, once")
		})
	}
	require.Greater(t, caps, 150)
}

type deviceOfHost struct {
	host  snapshot.Hostname
	index snapshot.DeviceIndex
}

// checkCap holds one cap finding against the snapshots.
func checkCap(t *testing.T, cluster snapshot.Cluster, f enforce.Finding, before map[snapshot.Hostname][]snapshot.PID) {
	taken := map[deviceOfHost]bool{}
	for _, d := range f.Detach {
		taken[deviceOfHost{d.Host, d.Index}] = true
	}
	require.Len(t, taken, f.Count.Used-f.Count.Limit, "never more devices than the excess, and never fewer")
	worst, best := -1, 3
	for _, h := range cluster.Hosts {
		for _, d := range h.Snapshot.Devices {
			cost, holds := costByContract(h, d, f.User, before[h.Name])
			if !holds {
				require.False(t, taken[deviceOfHost{h.Name, d.Index}], "no user loses another user's device")
				continue
			}
			if taken[deviceOfHost{h.Name, d.Index}] {
				worst = max(worst, cost)
			} else {
				best = min(best, cost)
			}
		}
	}
	require.LessOrEqual(t, worst, best, "idle, then ending anyway, then busy")
}

// costByContract is 0 for an idle device of the user's, 1 where its processes end anyway, 2 where it is busy.
func costByContract(h snapshot.Host, d snapshot.Device, user snapshot.Username, ending []snapshot.PID) (cost int, holds bool) {
	for _, a := range d.Attachments {
		if e := h.Snapshot.Environment(a.EID); e == nil || e.Username != user {
			continue
		}
		holds = true
		for _, p := range h.Snapshot.Processes {
			switch {
			case p.EID != a.EID || p.Uses(d.Index) == nil:
			case slices.Contains(ending, p.PID):
				cost = max(cost, 1)
			default:
				cost = 2
			}
		}
	}
	return cost, holds
}
