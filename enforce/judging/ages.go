package judging

import (
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// OfEnvironment is the device in the key of an environment, which is on none.
const OfEnvironment = "-1"

// rememberSeen remembers since when the attachments and environments count of which the hosts
// don't say it. Those of hosts without a snapshot stay as they are.
func (j *Judgement) rememberSeen() {
	j.Next.Seen = make(map[snapshot.AttachmentKey]enforce.Seen, len(j.Before.Seen))
	for key, seen := range j.Before.Seen {
		if _, inFleet := j.ByName[key.Host]; inFleet && j.ByName[key.Host] == nil {
			j.Next.Seen[key] = seen
		}
	}
	for _, h := range j.Hosts {
		j.rememberSeenOn(h)
	}
}

func (j *Judgement) rememberSeenOn(h *HostView) {
	see := func(device string, eid snapshot.EnvID, since snapshot.StartTime, written snapshot.Date) {
		if h.Reports(since) {
			return
		}
		key := snapshot.AttachmentKey{Host: h.Name, Device: device, EID: eid}
		seen, known := j.Before.Seen[key]
		if !known || seen.Written != written {
			seen = enforce.Seen{Written: written, Since: j.firstSeen(h, written)}
		}
		j.Next.Seen[key] = seen
	}
	for i := range h.Snapshot.Environments {
		e := &h.Snapshot.Environments[i]
		see(OfEnvironment, e.EID, e.Since, e.Creation)
	}
	for i := range h.Snapshot.Devices {
		d := &h.Snapshot.Devices[i]
		for _, a := range d.Attachments {
			see(d.Key(), a.EID, a.Since, a.Time)
		}
	}
}

// firstSeen is since when something counts that a host shows for the first time: not before
// the last look at the host. Without one the age begins now.
func (j *Judgement) firstSeen(h *HostView, written snapshot.Date) time.Time {
	last := j.LastLook(h)
	at := written.In(h.Zone)
	switch {
	case last.IsZero() || at.After(h.At):
		return h.At
	case at.Before(last):
		return last
	}
	return at
}

// Since is since when an attachment counts, or an environment, as root's looks show it, or as is
// remembered. Unknown is now.
func (j *Judgement) Since(h *HostView, device string, eid snapshot.EnvID, reported snapshot.StartTime) time.Time {
	if h.Reports(reported) {
		return h.Snapshot.When(reported, snapshot.Date{})
	}
	if seen, known := j.Next.Seen[snapshot.AttachmentKey{Host: h.Name, Device: device, EID: eid}]; known {
		return seen.Since
	}
	return h.At
}

// LastLook is when the host was asked for the last snapshot that was judged; zero for none.
func (j *Judgement) LastLook(h *HostView) time.Time {
	known := j.Before.Hosts[h.Name]
	if known.Looked.IsZero() && known.Answered && known.Lost == "" {
		return j.Before.Time // as earlier versions kept it
	}
	return known.Looked
}

// Reports says whether root's looks show since when something counts.
func (h *HostView) Reports(since snapshot.StartTime) bool {
	return since != 0 && !h.Snapshot.Boot.IsZero()
}
