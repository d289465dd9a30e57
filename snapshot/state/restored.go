package state

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// RestorationGrace is for how long after a restoration nothing is concluded from
// what the state files lack.
const RestorationGrace = time.Minute

// Restoration is a time at which root's genv found that the state files had lost
// something, and added it again. What was created since root last saw them complete
// may still be missing.
type Restoration struct {
	At    time.Time          `json:"at"`
	Since snapshot.StartTime `json:"since"` // of processes that started when the files were last complete
}

// InRestorationGrace says whether the environment of a process that started at start
// (0 if unknown) may be missing in the state files because they were restored
// recently. This holds for each process after one restoration only, since the next
// one has a later Since: a user who deletes the state files again and again gains
// nothing.
func (f *Files) InRestorationGrace(start snapshot.StartTime, now time.Time) bool {
	for _, r := range f.Restorations {
		if r.Recent(now) && (start == 0 || start >= r.Since) {
			return true
		}
	}
	return false
}

// Recent says whether the grace after the restoration lasts.
func (r Restoration) Recent(now time.Time) bool {
	ago := now.Sub(r.At)
	return ago >= 0 && ago < RestorationGrace
}

// AttachAsBefore attaches an environment to the devices that it had, as far as they
// have room.
func (f *Files) AttachAsBefore(eid snapshot.EnvID, before []snapshot.Device) {
	for i := range before {
		d, a := f.Device(before[i].Index), before[i].Attachment(eid)
		if d == nil || a == nil || d.Attachment(eid) != nil {
			continue
		}
		if r := (AttachRequest{Memory: a.GPUMemory}); r.fits(d) {
			attach(d, *a)
		}
	}
}

// AttachAgain attaches an environment to a device that its processes use, even if that
// has no room, and adds a warning. It serves after a restoration.
func (f *Files) AttachAgain(env *snapshot.Environment, index snapshot.DeviceIndex, at snapshot.Date) {
	d := f.Device(index)
	if d == nil || d.Attachment(env.EID) != nil {
		return
	}
	attach(d, snapshot.Attachment{EID: env.EID, GPUMemory: env.Config.GPUMemory, Time: at})
	f.Warn("GPU %s is attached to environment %s again, whose processes use it: the attachment was missing in the copy",
		index, text.Shown(string(env.EID)))
}
