package holdings

import (
	"cmp"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// capResult is what was found about one cap of one user.
type capResult struct {
	cap    Cap
	limit  int64
	going  func(user snapshot.Username, shard int, c Cap, t Take) bool // see Rules
	held   Amount                                                      // by the user in all shards
	shards []shardResult                                               // by their numbers
}

// shardResult is the part of a capResult that is about one shard.
type shardResult struct {
	held   Amount
	freed  int64
	takes  []Take
	excess Excess
}

// due reports whether the warnings are over wherever the user loses something.
func (r *capResult) due(p *person) bool {
	some := slices.ContainsFunc(r.shards, func(s shardResult) bool { return len(s.takes) > 0 })
	return !slices.ContainsFunc(p.parts, func(one part) bool {
		return !one.Due.Has(r.cap) && (!some || len(r.shards[one.remaining.number].takes) > 0)
	})
}

func (r *capResult) hold(remaining *Remaining, a Amount) {
	r.shards[remaining.number].held = a
	r.held = r.held.plus(a)
}

// heldEnv is an environment that a cap may take.
type heldEnv struct {
	*Env
	remaining *Remaining // of its shard
	going     bool
}

func (h *heldEnv) host() *Host { return &h.remaining.shard.Hosts[h.Host] }

func (h *heldEnv) take() Take {
	return Take{Host: h.host().Name, EID: h.EID, At: h.Created, Cost: h.Cost}
}

// judgeEnvs takes environments beyond the cap: those without any device first, from which
// there is nothing to take, then those without a process, then the newest. The environments
// themselves stay: they are people's shells.
func (r *capResult) judgeEnvs(p *person) {
	var envs []heldEnv
	for _, one := range p.parts {
		r.hold(one.remaining, Amount{Count: len(one.Envs), Hosts: one.Hosts})
		for i := range one.Envs {
			envs = append(envs, heldEnv{Env: &one.Envs[i], remaining: one.remaining})
		}
	}
	if r.held.of(r.cap) <= r.limit {
		return
	}
	for i := range envs {
		envs[i].going = r.isGoing(p, envs[i].remaining, envs[i].take())
	}
	slices.SortStableFunc(envs, func(a, b heldEnv) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), first(a.going, b.going), b.Created.Compare(a.Created), a.host().compare(b.host()), cmp.Compare(a.EID, b.EID))
	})
	for _, env := range envs[:r.held.of(r.cap)-max(0, r.limit)] {
		s := &r.shards[env.remaining.number]
		s.takes = append(s.takes, env.take())
		s.excess.Envs = append(s.excess.Envs, env.Env)
		s.freed++
	}
}

// judgeDevices takes devices until the user is within the cap of devices, or of memory.
func (r *capResult) judgeDevices(p *person) {
	devices := make([]*candidate, 0, p.most(Devices))
	for _, one := range p.parts {
		counted := one.remaining.countedFor(r.cap, one.User)
		r.hold(one.remaining, amountOf(r.cap, counted, one.Hosts))
		devices = append(devices, counted...)
	}
	used := r.held.of(r.cap)
	if used <= r.limit {
		return
	}
	for _, d := range devices {
		d.setCost()
		d.going = r.isGoing(p, d.remaining, d.take())
	}
	for _, d := range r.choose(devices, used) {
		s := &r.shards[d.remaining.number]
		s.takes = append(s.takes, d.take())
		s.excess.Devices = append(s.excess.Devices, d.Device)
		s.freed += d.weight(r.cap)
	}
}

func (r *capResult) choose(devices []*candidate, used int64) []*candidate {
	if r.cap == Memory {
		return chooseMemory(devices, used, r.limit)
	}
	return choose(devices, func(chosen []*candidate) bool { return int64(len(chosen)) >= used-r.limit })
}

// isGoing reports whether the user may be losing something already.
func (r *capResult) isGoing(p *person, remaining *Remaining, t Take) bool {
	return r.going != nil && r.going(p.name, remaining.number, r.cap, t)
}

// first compares two of which those go first that are marked.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	default:
		return 1
	}
}

func (d *candidate) take() Take {
	return Take{Host: d.host().Name, Device: d.Index, At: d.Newest, Cost: d.cost}
}

// weight is how much of a cap a device takes up.
func (d *candidate) weight(c Cap) int64 {
	if c == Memory {
		return d.Bytes
	}
	return 1
}
