package election

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Shown is a Status for people and programs.
type Shown struct {
	Role  Role      `json:"role"`
	Since time.Time `json:"since"`           // in which the role is what it is
	Epoch uint64    `json:"epoch,omitempty"` // of a leader, until its lease may have ended
	// Leader is the controller that leads, if it is another one and known.
	Leader      string    `json:"leader,omitempty"`
	LeaderSince time.Time `json:"leader_since,omitzero"`
	Error       string    `json:"error,omitempty"` // why etcd doesn't answer, or refuses; empty if it does neither
	// Refused says that etcd answered with the Error: it is there, and doesn't do what was asked.
	Refused bool `json:"refused,omitempty"`
	// Answered is when etcd answered last: of a leader, that it still leads.
	Answered time.Time `json:"answered,omitzero"`
	// Memory is when this controller, as the leader, wrote its memory to etcd last.
	Memory time.Time `json:"memory,omitzero"`
	// Unknown says of a standby that etcd hasn't said yet which controller leads.
	Unknown bool `json:"unknown,omitempty"`
}

// LeaderKnown reports whether a standby knows which controller leads, or that none does: etcd has answered
// since it is one.
func (s *Status) LeaderKnown() bool {
	return s.Leader != nil || !s.Answered.IsZero() && !s.Answered.Before(s.Since)
}

// Shown is what is shown of a Status.
func (s *Status) Shown() *Shown {
	shown := &Shown{Role: s.Role, Since: s.Since.Truncate(time.Second).UTC(), Epoch: s.Epoch}
	if !s.Answered.IsZero() {
		shown.Answered = s.Answered.Truncate(time.Second).UTC()
	}
	if s.Leader != nil {
		shown.Leader, shown.LeaderSince = s.Leader.Name, s.Leader.Since.UTC()
	}
	shown.Unknown = s.Role == Standby && !s.LeaderKnown()
	if s.Err != nil {
		shown.Error, shown.Refused = s.Err.Error(), etcd.Refused(s.Err)
	}
	return shown
}

const maxShown = 100 // characters of a name

// String is a line: "standby; "ann on jump-1, process 7" leads since 2026-03-01T10:00:00Z".
func (s *Shown) String() string {
	switch {
	case s.Role == Leading && s.Error == "":
		return fmt.Sprintf("this controller leads since %s (epoch %d)", s.Since.Format(time.RFC3339), s.Epoch)
	case s.Role == Leading && s.Refused:
		return "etcd refuses to renew the lease: this controller acts until the lease expires"
	case s.Role == Leading:
		return "etcd doesn't answer: this controller acts until its lease expires"
	case s.Role == Expired && s.Refused:
		return "etcd refuses what this controller asks; another controller may lead, so this one only watches"
	case s.Role == Expired && s.Error == "": // it was stopped, as a frozen virtual machine is
		return "the lease of this controller may have expired, and another controller may lead: this one only watches"
	case s.Role == Expired:
		return "etcd doesn't answer; another controller may lead, so this one only watches until etcd answers"
	case s.Refused:
		return "standby; etcd refuses what this controller asks, so it can't lead"
	case s.Error != "":
		return "standby; etcd doesn't answer, so it isn't known which controller leads"
	case s.Unknown:
		return "standby; etcd hasn't said yet which controller leads"
	case s.Leader == "":
		return "standby; no controller leads"
	case s.LeaderSince.IsZero():
		return "standby; " + text.Quoted(s.Leader, maxShown) + " leads"
	}
	return "standby; " + text.Quoted(s.Leader, maxShown) + " leads since " + s.LeaderSince.Format(time.RFC3339)
}
