// Package extension decides on the requests of users to keep an attachment for longer than
// the policy allows (`genv extend`), and says what is remembered of them, so that a user
// gets this once on a device. It is pure; package enforce applies it.
//
//	use, decision := uses[key].Answer(&request, offer)
//	limit += use.Lease(eid, attached)
package extension

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// MaxPerHost is how many Uses of a host are remembered. Beyond that requests wait, so that
// what was used is never forgotten.
const MaxPerHost = 1024

// Use is what is remembered of a user's requests about a device.
type Use struct {
	// Answered is the ID of the last request that was decided on.
	Answered string `json:"answered"`
	// Added is what the user was granted, 0 for nothing; EID and Attached say for which
	// attachment.
	Added    time.Duration  `json:"added_ns,omitempty"`
	EID      snapshot.EnvID `json:"eid,omitempty"`
	Attached string         `json:"attached,omitempty"`
	// Idle says which idle time is extended: one alone.
	Idle IdleTime `json:"idle,omitempty"`
	// Free is since when the user is known not to be attached to the device; zero while
	// the user is.
	Free time.Time `json:"free,omitzero"`
}

// IdleTime is how far the idle time is that an extension lengthens.
type IdleTime int

// The stages, each after the one before.
const (
	NotIdleYet IdleTime = iota
	IdleNow
	IdleOver // the device was used again: later idle times are not extended
)

// Offer is what the policy offers the user of an environment.
type Offer struct {
	Environment *snapshot.Environment

	Most    time.Duration // that may be added; 0 for none
	Limited bool          // a lease or an idle limit applies
}

// Decision is what was decided on a request.
type Decision struct {
	ID      string // the same for the same request in every record
	Host    snapshot.Hostname
	Request snapshot.Extension
	User    snapshot.Username
	Added   time.Duration // 0 if it was refused
	Reason  string        // why it was refused
}

// Answer decides on a request. The decision is nil if this request was decided on before.
func (u Use) Answer(r *snapshot.Extension, o Offer) (Use, *Decision) {
	if u.Answered == r.ID {
		return u, nil
	}
	u.Answered = r.ID
	d := &Decision{Request: *r}
	switch {
	case u.Added > 0:
		d.Reason = "it was extended already, and that is possible once"
	case !o.Limited:
		d.Reason = "no lease and no idle limit applies to it"
	case o.Most <= 0:
		d.Reason = "the policy doesn't allow it"
	default:
		d.Added = min(r.For, o.Most)
		u.Added, u.EID, u.Attached = d.Added, r.EID, r.Attached.String()
	}
	return u, d
}

// Lease is what is added to the duration of an attachment.
func (u Use) Lease(eid snapshot.EnvID, attached snapshot.Date) time.Duration {
	if u.EID != eid || u.Attached != attached.String() {
		return 0
	}
	return u.Added
}

// Idling returns the Use after a look at an attachment, and what is added to its present
// idle time.
func (u Use) Idling(eid snapshot.EnvID, attached snapshot.Date, idle bool) (Use, time.Duration) {
	added := u.Lease(eid, attached)
	switch {
	case added == 0 || u.Idle == IdleOver:
		return u, 0
	case idle:
		u.Idle = IdleNow
	case u.Idle == IdleNow:
		u.Idle = IdleOver
		return u, 0
	}
	return u, added
}

// minFree is for how long a user must at least not have been attached to a device before
// its extension is forgotten.
const minFree = 24 * time.Hour

// looks is how many times, at least, the host must be looked at within that time: what
// was attached while the controller didn't run is unknown.
const looks = 4

// Look says whether the user is attached to the device, and when that was looked at last:
// the zero time for never, or if the host did not answer then.
type Look struct {
	Attached  bool
	Now, Last time.Time
}

// After returns the Use after a look at its host, and whether it is still remembered: for
// a day without an attachment, or as long as the extension if that is longer.
func (u Use) After(l Look) (Use, bool) {
	if l.Attached {
		u.Free = time.Time{}
		return u, true
	}
	if u.Added == 0 {
		return u, false // the request was about an attachment that is over
	}
	wanted := max(minFree, u.Added)
	if u.Free.IsZero() || u.Free.After(l.Now) || l.Now.Sub(l.Last) > wanted/looks {
		u.Free = l.Now
	}
	return u, l.Now.Sub(u.Free) < wanted
}

// Granted reports whether the user got an extension.
func (d *Decision) Granted() bool { return d.Added > 0 }

// Action is what was decided, in a word, for the record.
func (d *Decision) Action() string {
	if d.Granted() {
		return "extended"
	}
	return "not-extended"
}

// String is the decision in one line. It is not escaped, except for names.
func (d *Decision) String() string {
	what := fmt.Sprintf("device %s of environment %s", d.Request.Index, d.Request.EID.Shown())
	if !d.Granted() {
		return fmt.Sprintf("Not extended: %s: %s", what, d.Reason)
	}
	line := fmt.Sprintf("Extended: %s, by %s", what, text.FormatDuration(d.Added))
	if d.Added < d.Request.For {
		line += fmt.Sprintf(" instead of %s", text.FormatDuration(d.Request.For))
	}
	return line
}
