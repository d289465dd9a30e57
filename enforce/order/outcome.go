package order

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// OutcomeStatus is what came of one item of an Order. The texts appear in JSON.
type OutcomeStatus string

const (
	StatusTerminated  OutcomeStatus = "terminated"   // the process ended after SIGTERM
	StatusKilled      OutcomeStatus = "killed"       // it ended after SIGKILL only
	StatusSignalled   OutcomeStatus = "signalled"    // SIGTERM was sent, and the end was not waited for
	StatusSurvived    OutcomeStatus = "survived"     // it still ran when the wait was over
	StatusGone        OutcomeStatus = "gone"         // it had ended before anything was done
	StatusChanged     OutcomeStatus = "changed"      // PID, devices or environment are not as judged; nothing was sent
	StatusRefused     OutcomeStatus = "refused"      // a process that is never signalled (see the reason)
	StatusDetached    OutcomeStatus = "detached"     // the attachment was removed
	StatusNotAttached OutcomeStatus = "not-attached" // there was no such attachment any more
	StatusFailed      OutcomeStatus = "failed"       // it was tried and the system refused (see the reason)
	// StatusUnknown: the connection was lost while the order ran. It is never sent again; the next cycle judges a
	// fresh snapshot.
	StatusUnknown OutcomeStatus = "unknown"
)

// Known reports whether s is one of the above.
func (s OutcomeStatus) Known() bool {
	return s.IsOver() || slices.Contains([]OutcomeStatus{
		StatusSignalled, StatusSurvived, StatusChanged, StatusRefused, StatusFailed, StatusUnknown,
	}, s)
}

// IsOver reports whether there is certainly nothing left of the item.
func (s OutcomeStatus) IsOver() bool {
	return slices.Contains([]OutcomeStatus{
		StatusTerminated, StatusKilled, StatusGone, StatusDetached, StatusNotAttached,
	}, s)
}

// Outcome is what came of a termination (PID is set) or a detachment (PID is 0; Device and EID say which).
type Outcome struct {
	PID    snapshot.PID         `json:"pid,omitempty"`
	Device snapshot.DeviceIndex `json:"device"`
	EID    snapshot.EnvID       `json:"eid,omitempty"`
	Status OutcomeStatus        `json:"status"`
	Reason string               `json:"reason,omitempty"` // plain English, for refused, changed and failed
}

// ItemOf is the item that an outcome is about; both are nil if the order has none.
func (o *Order) ItemOf(outcome Outcome) (*Termination, *Detachment) {
	for i := range o.Terminate {
		if t := &o.Terminate[i]; outcome.PID != 0 && t.Process.PID == outcome.PID {
			return t, nil
		}
	}
	for i := range o.Detach {
		if d := &o.Detach[i]; outcome.PID == 0 && d.Device == outcome.Device && d.Environment.EID == outcome.EID {
			return nil, d
		}
	}
	return nil, nil
}
