package state

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Moment is a moment on a host, by two clocks: the wall clock, in the time zone of the
// machine, and the one in which start times count, which can't be set.
type Moment struct {
	Wall  time.Time
	Start snapshot.StartTime // 0 if unknown
}

// Looks are what root's genv notes of its looks at the state files, in one boot: since when
// it knows what is in them, and which GPU each index was. Users write the time of an
// attachment themselves, in whatever zone their TZ names, so it only chooses between two looks.
type Looks struct {
	At           snapshot.StartTime `json:"at"` // when the last one was; 0 for none
	Environments []SeenEnvironment  `json:"envs,omitempty"`
	Attachments  []SeenAttachment   `json:"attachments,omitempty"`
	Devices      []SeenDevice       `json:"devices,omitempty"`
	Gone         []GoneAttachment   `json:"gone,omitempty"`
	Former       []FormerIndex      `json:"former,omitempty"`
}

// SeenEnvironment is an environment, and when its age begins.
type SeenEnvironment struct {
	EID     snapshot.EnvID     `json:"eid"`
	UID     snapshot.UID       `json:"uid"`
	Written snapshot.Date      `json:"creation"`
	Since   snapshot.StartTime `json:"since"`
}

// SeenAttachment is an attachment, and when its age begins.
type SeenAttachment struct {
	EID     snapshot.EnvID       `json:"eid"`
	Index   snapshot.DeviceIndex `json:"device"`
	Written snapshot.Date        `json:"time"`
	Since   snapshot.StartTime   `json:"since"`
}

// SeenDevice is which GPU an index is in devices.json.
type SeenDevice struct {
	Index snapshot.DeviceIndex `json:"device"`
	UUID  snapshot.GPUUUID     `json:"uuid"`
}

// Apply adds to the files what earlier looks noted about them: the GPUs of the indices, and
// since when attachments and environments count. What is attached again, or written with
// another time, is new. An environment with former indices only renews its attachments so,
// in a shell that knows the present indices then: the former ones don't count any more.
func (l Looks) Apply(f *Files) {
	f.Gone, f.Former = slices.Clone(l.Gone), slices.Clone(l.Former)
	for _, d := range l.Devices {
		if known := f.Device(d.Index); known != nil {
			known.UUID = d.UUID
		}
	}
	environments := make(map[SeenEnvironment]snapshot.StartTime, len(l.Environments))
	for _, e := range l.Environments {
		environments[SeenEnvironment{EID: e.EID, UID: e.UID, Written: e.Written}] = e.Since
	}
	for i := range f.Environments {
		e := &f.Environments[i]
		e.Since = environments[SeenEnvironment{EID: e.EID, UID: e.UID, Written: e.Creation}]
	}
	type place struct {
		index snapshot.DeviceIndex
		eid   snapshot.EnvID
	}
	attachments := make(map[place]*SeenAttachment, len(l.Attachments))
	for i := range l.Attachments {
		a := &l.Attachments[i]
		attachments[place{a.Index, a.EID}] = a
	}
	for i := range f.Devices {
		d := &f.Devices[i]
		for k := range d.Attachments {
			a := &d.Attachments[k]
			seen := attachments[place{d.Index, a.EID}]
			renewed := seen != nil && seen.Written != a.Time
			if seen != nil && (!renewed || l.hasFormer(a.EID)) {
				a.Since = seen.Since
			}
			if renewed {
				f.forgetFormer(a.EID)
			}
		}
	}
}

func (l *Looks) hasFormer(eid snapshot.EnvID) bool {
	return slices.ContainsFunc(l.Former, func(o FormerIndex) bool { return o.EID == eid })
}

// Look sets Since of what is new in the files, and returns the looks with this one. It was
// made after the last look; before the first look nothing is known, so ages begin with it.
func (l Looks) Look(f *Files, now Moment) Looks {
	if now.Start == 0 {
		return l
	}
	next := Looks{At: now.Start}
	if f.Unplaced() {
		next.At = l.At
	}
	for i := range f.Environments {
		e := &f.Environments[i]
		e.Since = l.since(e.Since, e.Creation, now)
		next.Environments = append(next.Environments, SeenEnvironment{e.EID, e.UID, e.Creation, e.Since})
	}
	for i := range f.Devices {
		d := &f.Devices[i]
		if d.UUID != "" {
			next.Devices = append(next.Devices, SeenDevice{d.Index, d.UUID})
		}
		for k := range d.Attachments {
			a := &d.Attachments[k]
			if f.unplaced(d, a) {
				continue
			}
			a.Since = l.since(a.Since, a.Time, now)
			next.Attachments = append(next.Attachments, SeenAttachment{a.EID, d.Index, a.Time, a.Since})
		}
	}
	next.Gone, next.Former = f.living(now.Start)
	return next
}

// since is when the age of something begins that is known since then, or new if that is 0.
func (l Looks) since(known snapshot.StartTime, written snapshot.Date, now Moment) snapshot.StartTime {
	switch {
	case known != 0:
		return min(known, now.Start)
	case l.At == 0:
		return now.Start
	}
	at := now.Start.Before(now.Wall.Sub(written.In(now.Wall.Location())))
	return min(max(at, l.At), now.Start)
}

// Unplaced says whether it isn't known to which GPU something was attached: since then, root's genv
// hasn't compared the GPUs with its note, and an index may be another GPU by now. Until it has, the
// attachment isn't noted, and the time of the last look stays what it was.
func (f *Files) Unplaced() bool {
	return slices.ContainsFunc(f.Devices, func(d snapshot.Device) bool {
		return slices.ContainsFunc(d.Attachments, func(a snapshot.Attachment) bool { return f.unplaced(&d, &a) })
	})
}

func (f *Files) unplaced(d *snapshot.Device, a *snapshot.Attachment) bool {
	return f.KeepsNote && !f.compared && d.UUID != "" && a.Since == 0
}

// Same says whether nothing was noted by one of them that wasn't by the other, except for when.
func (l *Looks) Same(o *Looks) bool {
	return slices.Equal(l.Environments, o.Environments) && slices.Equal(l.Attachments, o.Attachments) &&
		slices.Equal(l.Devices, o.Devices) && slices.Equal(l.Gone, o.Gone) && slices.Equal(l.Former, o.Former)
}
