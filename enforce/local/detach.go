package local

import (
	"context"
	"fmt"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// detach removes attachments, all of them in one update of the state files: one lock
// to wait for, and a file that is either the old one or the new one.
func (x *Executor) detach(ctx context.Context, items []enforce.Detachment, outcomes []enforce.Outcome) {
	if len(items) == 0 {
		return
	}
	verdicts := make([]verdict, len(items))
	err := x.books.Update(ctx, func(books *state.Files) error {
		for i := range items {
			verdicts[i] = detachOne(&items[i], books)
		}
		return context.Cause(ctx)
	})
	for i := range items {
		v := verdicts[i]
		if err != nil { // then nothing was written, whatever was decided
			v = failed("the attachment was not removed: %v", err)
		}
		outcomes[i] = enforce.Outcome{
			Device: items[i].Device, EID: items[i].Environment.EID, Status: v.status, Reason: v.reason,
		}
		if v.status == enforce.StatusDetached {
			x.say(items[i].String())
		}
	}
}

// detachOne decides on one attachment and removes it from the state files.
func detachOne(item *enforce.Detachment, books *state.Files) verdict {
	judged := &item.Environment
	device := books.Device(item.Device)
	if device == nil || device.Attachment(judged.EID) == nil {
		return verdict{status: enforce.StatusNotAttached}
	}
	// Every user may change the date of creation, so another one is no proof that
	// the id names another environment.
	if now := books.Environment(judged.EID); now != nil && now.UID != judged.UID {
		return changed("environment %s was registered for another user since it was judged", nameEnv(judged.EID))
	}
	books.Detach(judged.EID, item.Device)
	return verdict{status: enforce.StatusDetached}
}

// spared are the environments that kept a device which the report takes away,
// each with why. Their processes are left alone too: either the state files can't be
// trusted now, or the id names another environment than the one that was
// judged, and a process may be another one as well, unless its start time is known.
func spared(outcomes []enforce.Outcome) map[snapshot.EnvID]verdict {
	out := map[snapshot.EnvID]verdict{}
	for _, o := range outcomes {
		if o.Status != enforce.StatusDetached && o.Status != enforce.StatusNotAttached {
			reason := fmt.Sprintf("not begun, since its environment kept device %d: %s", o.Device, o.Reason)
			out[o.EID] = verdict{status: o.Status, reason: reason}
		}
	}
	return out
}
