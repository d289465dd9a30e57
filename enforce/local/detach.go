package local

import (
	"context"
	"fmt"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// detach removes attachments, all of them in one update of the books: one lock
// to wait for, and a file that is either the old one or the new one.
func (x *Executor) detach(ctx context.Context, items []enforce.Detachment, outcomes []enforce.Outcome) {
	if len(items) == 0 {
		return
	}
	verdicts := make([]verdict, len(items))
	err := x.books.Update(ctx, func(books *state.Books) error {
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
			x.say(detachingLine(items[i].Device, &items[i].Environment))
		}
	}
}

// detachOne decides on one attachment and removes it from the books.
func detachOne(item *enforce.Detachment, books *state.Books) verdict {
	judged := &item.Environment
	device := books.Device(item.Device)
	if device == nil || device.Attachment(judged.EID) == nil {
		return verdict{enforce.StatusNotAttached, ""}
	}
	if now := books.Environment(judged.EID); now != nil && !sameEnvironment(now, judged) {
		return changed("environment %s was registered anew since it was judged", nameEnv(judged.EID))
	}
	books.Detach(judged.EID, item.Device)
	return verdict{enforce.StatusDetached, ""}
}

// sameEnvironment says whether an id still names the environment that was
// judged. Ids are PIDs of shells, and the kernel hands those out again.
func sameEnvironment(now, judged *snapshot.Environment) bool {
	return now.UID == judged.UID && now.Creation.Compare(judged.Creation) == 0
}

// spared are the environments that kept a device which the report takes away,
// each with why. Their processes are left alone too: either the books can't be
// trusted now, or the id names another environment than the one that was
// judged.
func spared(outcomes []enforce.Outcome) map[snapshot.EnvID]verdict {
	out := map[snapshot.EnvID]verdict{}
	for _, o := range outcomes {
		if o.Status != enforce.StatusDetached && o.Status != enforce.StatusNotAttached {
			reason := fmt.Sprintf("not begun, since its environment kept device %d: %s", o.Device, o.Reason)
			out[o.EID] = verdict{o.Status, reason}
		}
	}
	return out
}
