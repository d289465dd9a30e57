package local

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// spareAfterRestore makes the environment of those processes unknown that began
// since root last saw the state files whole before they were restored, and claim one
// that is not registered: it may have begun in between, and have got lost. It
// returns a warning for it.
func spareAfterRestore(s *snapshot.Snapshot, books *state.Files, now time.Time) []string {
	if len(books.Restorations) == 0 {
		return nil
	}
	spared := 0
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.EID != "" && s.Environment(p.EID) == nil && books.InRestorationGrace(p.Start, now) {
			p.EID, p.EnvUnknown = "", true
			spared++
		}
	}
	if spared == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the state files were restored from a copy %s ago: the environments of %d processes that began since that copy are unknown until a minute has passed",
		now.Sub(books.Restorations[len(books.Restorations)-1].At).Round(time.Second), spared)}
}

// reattach attaches environments to the devices that their processes use, for a
// minute after a restoration, or as long as that can't be written: the copy lacks what was attached since it was
// taken, and nobody's process may end for that. It gives nobody more than
// `genv attach --allow-over-subscription` would.
func (c *Collector) reattach(ctx context.Context, processes []snapshot.Process, books state.Files) (state.Files, error) {
	if !books.DevicesNotSaved && !books.InRestorationGrace(0, c.now()) {
		return books, nil
	}
	uses := make(map[snapshot.EnvID][]snapshot.DeviceIndex)
	for i := range processes {
		p := &processes[i]
		env := books.Environment(p.EID)
		if p.EID == "" || env == nil || p.UID == nil || *p.UID != env.UID && *p.UID != 0 {
			continue
		}
		for _, u := range p.Usage {
			if d := books.Device(u.Index); d != nil && d.Attachment(p.EID) == nil {
				uses[p.EID] = append(uses[p.EID], u.Index)
			}
		}
	}
	if len(uses) == 0 {
		return books, nil
	}
	return c.StateFiles.Reattach(ctx, uses)
}
