package local

import (
	"context"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// spareAfterRestoration makes the environment of a process unknown if it is not
// registered and may have been lost before the state files were restored: the process
// started after root last saw them complete. It returns a warning about it.
func spareAfterRestoration(s *snapshot.Snapshot, files *state.Files, now time.Time) []string {
	if len(files.Restorations) == 0 {
		return nil
	}
	spared := 0
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.EID != "" && s.Environment(p.EID) == nil && files.InRestorationGrace(p.Start, now) {
			p.EID, p.EnvUnknown = "", true
			spared++
		}
	}
	if spared == 0 {
		return nil
	}
	return []string{fmt.Sprintf("the state files were restored from a copy %s ago: the environments of %d processes that began since that copy are unknown until a minute has passed",
		now.Sub(files.Restorations[len(files.Restorations)-1].At).Round(time.Second), spared)}
}

// reattach attaches environments to the devices that their processes use, for a minute
// after a restoration, or as long as its result can't be written: the copy lacks later
// attachments, and no process may be terminated for that. A user gains nothing that
// `genv attach --allow-over-subscription` would not give.
func (c *Collector) reattach(ctx context.Context, processes []snapshot.Process, files state.Files) (state.Files, error) {
	if !files.DevicesNotSaved && !files.InRestorationGrace(0, c.now()) {
		return files, nil
	}
	uses := make(map[snapshot.EnvID][]snapshot.DeviceIndex)
	for i := range processes {
		p := &processes[i]
		env := files.Environment(p.EID)
		if p.EID == "" || env == nil || p.UID == nil || *p.UID != env.UID && *p.UID != 0 {
			continue
		}
		for _, u := range p.Usage {
			if d := files.Device(u.Index); d != nil && d.Attachment(p.EID) == nil {
				uses[p.EID] = append(uses[p.EID], u.Index)
			}
		}
	}
	if len(uses) == 0 {
		return files, nil
	}
	return c.StateFiles.Reattach(ctx, uses)
}
