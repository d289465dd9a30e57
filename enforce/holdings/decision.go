package holdings

import "github.com/seed-3119e985/genv/snapshot"

// Decision is what was decided for one shard.
type Decision struct {
	Over []Over `json:"over,omitempty"` // in the order in which it is to be applied
	// Missing is how many hosts of the fleet did not answer: what users hold there is not known.
	Missing int `json:"missing,omitempty"`
}

// Over says that a user is over a cap, and what the user loses in one shard. Every shard gets an
// entry, also if the user loses nothing there, so that each shard knows how long the user has been
// over the cap.
type Over struct {
	User  snapshot.Username `json:"user"`
	Cap   Cap               `json:"cap"`
	Limit int64             `json:"limit"` // a number, or of Memory bytes
	// Elsewhere is what the user holds in the other shards, and FreedElsewhere how much of it
	// is to go.
	Elsewhere      Amount `json:"elsewhere,omitzero"`
	FreedElsewhere int64  `json:"freed_elsewhere,omitempty"`
	// Due says that warnings are over wherever something is to be taken.
	Due bool `json:"due,omitempty"`
	// Shown: this shard reports the finding although the user loses nothing here. One shard per
	// finding has it.
	Shown bool `json:"shown,omitempty"`
	// Settling says that it would be due, but the user may be losing something else already, or
	// was not seen to be over the cap in all shards yet.
	Settling bool `json:"settling,omitempty"`
	// Again says that all shards have applied an earlier decision, and the user is over the cap
	// still: Takes also go if they were given back and taken again meanwhile, and something else that
	// costs no more goes instead of what was given back for good.
	Again bool   `json:"again,omitempty"`
	Takes []Take `json:"takes,omitempty"`
}

// Amount is how much a user holds.
type Amount struct {
	Count int   `json:"count"`           // of devices or environments
	Bytes int64 `json:"bytes,omitempty"` // of Memory
	Hosts int   `json:"hosts"`
}

func (a Amount) of(c Cap) int64 {
	if c == Memory {
		return a.Bytes
	}
	return int64(a.Count)
}

func (a Amount) plus(b Amount) Amount {
	return Amount{a.Count + b.Count, a.Bytes + b.Bytes, a.Hosts + b.Hosts}
}

func (a Amount) minus(b Amount) Amount {
	return Amount{a.Count - b.Count, a.Bytes - b.Bytes, a.Hosts - b.Hosts}
}

// Take is a device, or with EID an environment, that the user is to lose. Cost is what that
// costs the user: if it turns out to cost more, it is not taken. Nor is it if all its
// attachments, or the environment, are from later than At: then it was given back meanwhile,
// which is enough the first time; see Over.Again.
// Cost is, for a device, costIdle to costBusy and, for an environment, contents.Contents.Cost: 0
// to 3 in both, comparable only among devices, or among environments.
type Take struct {
	At     snapshot.Date        `json:"at,omitzero"`
	Host   snapshot.Hostname    `json:"host"`
	Device snapshot.DeviceIndex `json:"device,omitempty"`
	EID    snapshot.EnvID       `json:"eid,omitempty"`
	Cost   int8                 `json:"cost,omitempty"`
}

// Limits are the caps of a user, nil for none.
type Limits struct {
	Envs, Devices *int
	Memory        *int64 // bytes
}

// Of is one of the limits; false if there is none.
func (l Limits) Of(c Cap) (limit int64, capped bool) {
	switch {
	case c == Envs && l.Envs != nil:
		return int64(*l.Envs), true
	case c == Devices && l.Devices != nil:
		return int64(*l.Devices), true
	case c == Memory && l.Memory != nil:
		return *l.Memory, true
	}
	return 0, false
}

// Rules say how Decide decides.
type Rules struct {
	// Limits are those of a user; the zero Limits for one who is exempt.
	Limits func(snapshot.Username) Limits
	// Missing is how many hosts are in shards of which nothing is known. They count as those
	// that did not answer.
	Missing int
	// Pause has caps wait while a host did not answer.
	Pause bool
	// Going reports whether the user may be losing something already, which is in the shard with an
	// index: of what costs the same, this goes first, so that nothing else need go. It may be nil.
	Going func(user snapshot.Username, shard int, c Cap, t Take) bool
}
