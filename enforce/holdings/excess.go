package holdings

import (
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Excess is what a user holds who is over a cap, and what of it the user loses in this shard.
type Excess struct {
	Used    Amount // in all shards
	Envs    []*Env
	Devices []*Device
}

// Excess applies to the holdings of now what was decided. It returns false if the user is
// within the cap now, as far as the other shards are as they were. What isn't there any more
// is not taken, nor what costs the user more now, nor what need not go any more. With Over.Again,
// something else is taken instead of what isn't there any more.
func (r *Remaining) Excess(o *Over) (e Excess, over bool) {
	user := r.users[o.User]
	if user == nil {
		user = &User{}
	}
	if o.Cap == Envs {
		return r.excessOfEnvs(user, o)
	}
	return r.excessOfDevices(user, o)
}

func (r *Remaining) excessOfEnvs(user *User, o *Over) (e Excess, over bool) {
	type env struct {
		host snapshot.Hostname
		eid  snapshot.EnvID
	}
	e.Used = o.Elsewhere.plus(Amount{Count: len(user.Envs), Hosts: user.Hosts})
	if e.Used.of(o.Cap) <= o.Limit {
		return e, false
	}
	byName := make(map[env]*Env, len(user.Envs))
	for i := range user.Envs {
		byName[env{r.shard.Hosts[user.Envs[i].Host].Name, user.Envs[i].EID}] = &user.Envs[i]
	}
	var gone []Take
	for _, take := range o.Takes {
		key := env{take.Host, take.EID}
		switch found := byName[key]; {
		case found == nil:
			gone = append(gone, take)
		case found.Cost <= take.Cost && o.means(take, found.Created):
			e.Envs = append(e.Envs, found)
		}
		delete(byName, key)
	}
	if o.Again && len(gone) > 0 {
		e.Envs = append(e.Envs, r.envsInstead(gone, slices.Collect(maps.Values(byName)), -o.surplus(e.Used, int64(len(e.Envs))))...)
	}
	e.Envs = spareNeedless(e.Envs, o.surplus(e.Used, int64(len(e.Envs))), func(*Env) int64 { return 1 })
	return e, true
}

func (r *Remaining) excessOfDevices(user *User, o *Over) (e Excess, over bool) {
	type device struct {
		host  snapshot.Hostname
		index snapshot.DeviceIndex
	}
	counted := r.countedFor(o.Cap, user)
	e.Used = o.Elsewhere.plus(amountOf(o.Cap, counted, user.Hosts))
	if e.Used.of(o.Cap) <= o.Limit {
		return e, false
	}
	byName := make(map[device]*candidate, len(o.Takes))
	for _, take := range o.Takes {
		byName[device{take.Host, take.Device}] = nil
	}
	var others []*candidate
	for _, d := range counted {
		key := device{d.host().Name, d.Index}
		if _, named := byName[key]; named {
			d.setCost()
			byName[key] = d
		} else if o.Again {
			others = append(others, d)
		}
	}
	var taken []*candidate
	var gone []Take
	freed := int64(0)
	for _, take := range o.Takes {
		switch d := byName[device{take.Host, take.Device}]; {
		case d == nil:
			gone = append(gone, take)
		case d.takeable() && d.cost <= take.Cost && o.means(take, d.Oldest):
			taken = append(taken, d)
			freed += d.weight(o.Cap)
		}
	}
	if o.Again && len(gone) > 0 {
		instead := devicesInstead(o.Cap, gone, others, -o.surplus(e.Used, freed))
		taken = append(taken, instead...)
		for _, d := range instead {
			freed += d.weight(o.Cap)
		}
	}
	taken = spareNeedless(taken, o.surplus(e.Used, freed), func(d *candidate) int64 { return d.weight(o.Cap) })
	e.Devices = slices.Grow(e.Devices, len(taken))
	for _, d := range taken {
		e.Devices = append(e.Devices, d.Device)
	}
	return e, true
}

// surplus is by how much the user would be below the cap, once what is to go has gone in
// all shards; negative if the user would still be over it.
func (o *Over) surplus(used Amount, freedHere int64) int64 {
	return o.Limit - (used.of(o.Cap) - o.FreedElsewhere - freedHere)
}

// means reports whether a decision takes what the user has held since a time.
func (o *Over) means(t Take, since snapshot.Date) bool { return o.Again || since.Compare(t.At) <= 0 }

// Holds reports whether a user holds what a decision takes, also if it was given back and taken
// again meanwhile, and it counts for the cap.
func (r *Remaining) Holds(user snapshot.Username, c Cap, t Take) bool {
	u := r.users[user]
	if u == nil {
		return false
	}
	if c == Envs {
		return slices.ContainsFunc(u.Envs, func(e Env) bool {
			return e.EID == t.EID && r.shard.Hosts[e.Host].Name == t.Host
		})
	}
	return slices.ContainsFunc(r.countedFor(c, u), func(d *candidate) bool {
		return d.Index == t.Device && d.host().Name == t.Host
	})
}
