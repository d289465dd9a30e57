package election

import "time"

// Role is what a controller is in an election.
type Role string

// The roles.
const (
	// Standby waits until no other controller leads.
	Standby Role = "standby"
	// Leading may act.
	Leading Role = "leading"
	// Expired led, and can't reach etcd: its lease may have ended, so another one may lead.
	Expired Role = "expired"
)

// State is what a controller knows of its part in an election. It is a value. The zero State
// is that of a standby. Times are readings of one clock that never goes back, and goes on
// while the machine sleeps.
type State struct {
	leads bool          // it made the key, and doesn't know that it is gone
	lease int64         // on which the key depends
	epoch uint64        // in which the key was made
	until time.Duration // when the lease may end
}

// Role is the role at a time.
func (s State) Role(now time.Duration) Role {
	switch {
	case !s.leads:
		return Standby
	case now < s.until:
		return Leading
	}
	return Expired
}

// Won is the state after the key was made with a lease that was asked for at a time.
func (s State) Won(lease int64, epoch uint64, sent, ttl time.Duration) State {
	return State{leads: true, lease: lease, epoch: epoch, until: sent + ttl}
}

// Renewed is the state after the lease was renewed: the request was sent at a time, and the
// answer came at now. One that comes too late doesn't make an expired leader lead again, since
// it has told what depends on it that it doesn't.
func (s State) Renewed(lease int64, sent, ttl, now time.Duration) State {
	if s.Role(now) == Leading && lease == s.lease {
		s.until = max(s.until, sent+ttl)
	}
	return s
}

// Lost is the state after it became known that the key is gone, or belongs to another.
func (s State) Lost() State { return State{} }

// Left is for how long it leads if etcd doesn't answer any more; 0 if it doesn't lead.
func (s State) Left(now time.Duration) time.Duration {
	if s.Role(now) != Leading {
		return 0
	}
	return s.until - now
}
