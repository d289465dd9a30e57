package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// detach removes attachments in one atomic update of the state files. It notes the environments that keep a device,
// except if only the disk is full: then their processes end all the same.
func (x *execution) detach(ctx context.Context, items []order.Detachment) []order.Outcome {
	outcomes := make([]order.Outcome, len(items))
	if len(items) == 0 {
		return outcomes
	}
	decided, release := false, func() {}
	now, err := new(inspection), error(nil)
	if len(x.gpus) > 0 || slices.ContainsFunc(items, func(d order.Detachment) bool { return d.Unused }) {
		now, err = x.inspect(ctx)
	}
	change := func(files *state.Files) error {
		var err error
		if release, err = x.hold(); err != nil {
			return err
		}
		for i := range items {
			if o := x.checkDetachment(&items[i], now, files); o.raised() {
				outcomes[i].Status, outcomes[i].Reason = o.status, o.reason
				continue
			}
			outcomes[i].Status, outcomes[i].Reason = detachOne(&items[i], files, x.options.UID)
		}
		decided = ctx.Err() == nil
		return context.Cause(ctx)
	}
	if err == nil {
		err = x.stateFiles.Update(ctx, change)
	}
	if release != nil {
		release()
	}
	for i := range items {
		outcomes[i].Device, outcomes[i].EID = items[i].Device, items[i].Environment.EID
	}
	x.attached = stillAttached(outcomes) // by what was decided
	for i := range items {
		o := &outcomes[i]
		if err != nil { // nothing was written, whatever was decided
			o.Status, o.Reason = order.StatusFailed, fmt.Sprintf("the attachment was not removed: %v", err)
		}
		if o.Status == order.StatusDetached {
			x.onAction(items[i].String())
		}
	}
	if !decided || err != nil && !folder.IsFull(err) {
		x.attached = stillAttached(outcomes)
	}
	return outcomes
}

func (x *execution) checkDetachment(d *order.Detachment, now *inspection, files *state.Files) refusal {
	if o := x.otherGPU(d.Device, now, files); o.raised() || !d.Unused {
		return o
	}
	for pid, p := range now.processes {
		perhaps := p.EnvUnknown && (p.UID == nil || *p.UID == d.Environment.UID)
		if p.Uses(d.Device) != nil && !p.NodeMissing && (perhaps || d.Environment.Holds(p)) {
			return changed("process %d uses it now", pid)
		}
	}
	return refusal{}
}

func detachOne(item *order.Detachment, files *state.Files, uid snapshot.UID) (status order.OutcomeStatus, reason string) {
	judged := &item.Environment
	if device := files.Device(item.Device); device == nil || device.Attachment(judged.EID) == nil {
		return order.StatusNotAttached, ""
	}
	// Every user may change the creation date, so only another owner proves another environment.
	if now := files.Environment(judged.EID); now != nil && now.UID != judged.UID {
		return order.StatusChanged, fmt.Sprintf("environment %s was registered for another user since it was judged",
			judged.EID.Shown())
	}
	if err := files.CheckOwner(judged.EID, uid); errors.Is(err, state.ErrNotOwner) {
		return order.StatusRefused, err.Error()
	}
	files.Detach(judged.EID, item.Device)
	return order.StatusDetached, ""
}

// stillAttached are the environments that kept a device of the order, with the reason. Their processes are not
// signalled: the state files can't be trusted now, or the ID names another environment. In the latter case processes
// with a start time are verified: see checkItem.
func stillAttached(outcomes []order.Outcome) map[snapshot.EnvID]refusal {
	out := map[snapshot.EnvID]refusal{}
	for _, o := range outcomes {
		if o.Status != order.StatusDetached && o.Status != order.StatusNotAttached {
			reason := fmt.Sprintf("not begun, since its environment kept GPU %d: %s", o.Device, o.Reason)
			out[o.EID] = refusal{status: o.Status, reason: reason}
		}
	}
	return out
}
