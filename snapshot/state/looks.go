package state

import (
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
// it knows what is in them. Users write the time of an attachment themselves, in whatever
// zone their TZ names, so it only chooses between the two looks.
type Looks struct {
	At           snapshot.StartTime `json:"at"` // when the last one was; 0 for none
	Environments []SeenEnvironment  `json:"envs,omitempty"`
	Attachments  []SeenAttachment   `json:"attachments,omitempty"`
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

// Look sets Since of what is in the files, and returns the looks with this one. What is new
// was made after the last look; before the first look nothing is known, so ages begin with
// it. What is attached again, or written with another time, is new.
func (l Looks) Look(f *Files, now Moment) Looks {
	if now.Start == 0 {
		return l
	}
	next := Looks{At: now.Start}
	environments := make(map[SeenEnvironment]snapshot.StartTime, len(l.Environments))
	for _, e := range l.Environments {
		environments[SeenEnvironment{EID: e.EID, UID: e.UID, Written: e.Written}] = e.Since
	}
	for i := range f.Environments {
		e := &f.Environments[i]
		key := SeenEnvironment{EID: e.EID, UID: e.UID, Written: e.Creation}
		key.Since = l.since(environments[key], e.Creation, now)
		next.Environments, e.Since = append(next.Environments, key), key.Since
	}
	attachments := make(map[SeenAttachment]snapshot.StartTime, len(l.Attachments))
	for _, a := range l.Attachments {
		attachments[SeenAttachment{EID: a.EID, Index: a.Index, Written: a.Written}] = a.Since
	}
	for i := range f.Devices {
		d := &f.Devices[i]
		for k := range d.Attachments {
			a := &d.Attachments[k]
			key := SeenAttachment{EID: a.EID, Index: d.Index, Written: a.Time}
			key.Since = l.since(attachments[key], a.Time, now)
			next.Attachments, a.Since = append(next.Attachments, key), key.Since
		}
	}
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
