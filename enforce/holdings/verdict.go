package holdings

import (
	"cmp"
	"slices"
)

// verdict is what was found about one cap of one user.
type verdict struct {
	cap    Cap
	limit  int64
	held   Amount    // by the user in all shards
	shards []inShard // by their numbers
}

// inShard is the part of a verdict that is about one shard.
type inShard struct {
	held   Amount
	freed  int64
	takes  []Take
	excess Excess
}

// due reports whether the warnings are over wherever the user loses something.
func (v *verdict) due(p *person) bool {
	some := slices.ContainsFunc(v.shards, func(s inShard) bool { return len(s.takes) > 0 })
	return !slices.ContainsFunc(p.parts, func(one part) bool {
		return !one.Due.Has(v.cap) && (!some || len(v.shards[one.book.number].takes) > 0)
	})
}

func (v *verdict) hold(book *Book, a Amount) {
	v.shards[book.number].held = a
	v.held = v.held.plus(a)
}

// heldEnv is an environment with the book that it is in.
type heldEnv struct {
	*Env
	book *Book
}

func (h heldEnv) host() *Host { return &h.book.shard.Hosts[h.Host] }

// judgeEnvs takes environments beyond the cap: those without any device first, from which
// there is nothing to take, then those without a process, then the newest. The environments
// themselves stay: they are people's shells.
func (v *verdict) judgeEnvs(p *person) {
	var envs []heldEnv
	for _, one := range p.parts {
		v.hold(one.book, Amount{Count: len(one.Envs), Hosts: one.Hosts})
		for i := range one.Envs {
			envs = append(envs, heldEnv{&one.Envs[i], one.book})
		}
	}
	if v.held.of(v.cap) <= v.limit {
		return
	}
	slices.SortStableFunc(envs, func(a, b heldEnv) int {
		return cmp.Or(cmp.Compare(a.Cost, b.Cost), b.Created.Compare(a.Created), a.host().compare(b.host()), cmp.Compare(a.EID, b.EID))
	})
	for _, env := range envs[:v.held.of(v.cap)-max(0, v.limit)] {
		s := &v.shards[env.book.number]
		s.takes = append(s.takes, Take{Host: env.host().Name, EID: env.EID, At: env.Created, Cost: env.Cost})
		s.excess.Envs = append(s.excess.Envs, env.Env)
		s.freed++
	}
}

// judgeDevices takes devices until the user is within the cap of devices, or of memory.
func (v *verdict) judgeDevices(p *person) {
	devices := make([]*held, 0, p.most(Devices))
	for _, one := range p.parts {
		counted := one.book.countedFor(v.cap, one.User)
		v.hold(one.book, amountOf(v.cap, counted, one.Hosts))
		devices = append(devices, counted...)
	}
	used := v.held.of(v.cap)
	if used <= v.limit {
		return
	}
	for _, h := range devices {
		h.setCost()
	}
	for _, h := range v.choose(devices, used) {
		s := &v.shards[h.book.number]
		s.takes = append(s.takes, Take{Host: h.host().Name, Device: h.Index, At: h.Newest, Cost: h.cost})
		s.excess.Devices = append(s.excess.Devices, h.Device)
		s.freed += h.weight(v.cap)
	}
}

func (v *verdict) choose(devices []*held, used int64) []*held {
	if v.cap == Memory {
		return chooseMemory(devices, used, v.limit)
	}
	return choose(devices, func(chosen []*held) bool { return int64(len(chosen)) >= used-v.limit })
}

// weight is how much of a cap a device takes up.
func (h *held) weight(c Cap) int64 {
	if c == Memory {
		return h.Bytes
	}
	return 1
}
