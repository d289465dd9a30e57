package enforcement

import (
	"sync/atomic"

	"github.com/seed-3119e985/genv/remote/controller"
)

// unrecorded is whether a controller that takes part in an election can record what it does. One that can't
// may do nothing, so it leaves the lead to another one until it can.
type unrecorded struct {
	cycles int         // that could not be recorded, one after the other
	unable atomic.Bool // it doesn't lead
}

const (
	// unrecordedCycles is after how many of them a leader leaves the lead to another one.
	unrecordedCycles = 2
	// roomToLead is how much has to fit into the record before it leads again, in bytes.
	roomToLead = 1 << 20
)

// noteRecord notes whether a cycle could be recorded. A standby records nothing, so it tries.
func (l *loop) noteRecord(cycle *controller.Cycle) {
	u := &l.unrecorded
	switch {
	case l.part == nil || l.record == nil || l.setup.ActUnrecorded || cycle.Stopped:
	case cycle.Unrecorded != nil:
		if u.cycles++; u.cycles >= unrecordedCycles && !u.unable.Swap(true) {
			l.log.Warn().AnErr("record", cycle.Unrecorded).Msg("the record can't be written, so this controller may not act: it gives up the lead until there is room")
		}
	default:
		if u.cycles = 0; u.unable.Load() && l.record.Reserve(roomToLead) == nil {
			u.unable.Store(false)
			l.log.Warn().Msg("the record can be written again: this controller can lead")
		}
	}
}

// mayLead reports whether it makes sense that this controller leads: it isn't stuck, and can record what it does.
func (l *loop) mayLead() bool { return l.service.works() && !l.unrecorded.unable.Load() }
