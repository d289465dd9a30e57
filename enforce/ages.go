package enforce

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// ofEnvironment is the device in the key of an environment, which is on none.
const ofEnvironment = "-1"

// rememberSeen remembers since when the attachments and environments count of which the hosts
// don't say it. Those of hosts without a snapshot stay as they are.
func (j *judgement) rememberSeen() {
	j.next.Seen = make(map[snapshot.AttachmentKey]Seen, len(j.before.Seen))
	for key, seen := range j.before.Seen {
		if _, inFleet := j.byName[key.Host]; inFleet && j.byName[key.Host] == nil {
			j.next.Seen[key] = seen
		}
	}
	for _, h := range j.hosts {
		j.rememberSeenOn(h)
	}
}

func (j *judgement) rememberSeenOn(h *hostView) {
	see := func(device string, eid snapshot.EnvID, since snapshot.StartTime, written snapshot.Date) {
		if h.reports(since) {
			return
		}
		key := snapshot.AttachmentKey{Host: h.name, Device: device, EID: eid}
		seen, known := j.before.Seen[key]
		if !known || seen.Written != written {
			seen = Seen{written, j.firstSeen(h, written)}
		}
		j.next.Seen[key] = seen
	}
	for i := range h.snapshot.Environments {
		e := &h.snapshot.Environments[i]
		see(ofEnvironment, e.EID, e.Since, e.Creation)
	}
	for i := range h.snapshot.Devices {
		d := &h.snapshot.Devices[i]
		for _, a := range d.Attachments {
			see(d.Key(), a.EID, a.Since, a.Time)
		}
	}
}

// firstSeen is since when something counts that a host shows for the first time: not before
// the last look at the host. Without one the age begins now.
func (j *judgement) firstSeen(h *hostView, written snapshot.Date) time.Time {
	last := j.lastLook(h)
	at := written.In(h.zone)
	switch {
	case last.IsZero() || at.After(h.at):
		return h.at
	case at.Before(last):
		return last
	}
	return at
}

// since is since when an attachment counts, or an environment, as root's looks show it, or as is
// remembered. Unknown is now.
func (j *judgement) since(h *hostView, device string, eid snapshot.EnvID, reported snapshot.StartTime) time.Time {
	if h.reports(reported) {
		return h.snapshot.When(reported, snapshot.Date{})
	}
	if seen, known := j.next.Seen[snapshot.AttachmentKey{Host: h.name, Device: device, EID: eid}]; known {
		return seen.Since
	}
	return h.at
}

// lastLook is when the host was asked for the last snapshot that was judged; zero for none.
func (j *judgement) lastLook(h *hostView) time.Time {
	known := j.before.Hosts[h.name]
	if known.Looked.IsZero() && known.Answered && known.Lost == "" {
		return j.before.Time // as earlier versions kept it
	}
	return known.Looked
}

// reports says whether root's looks show since when something counts.
func (h *hostView) reports(since snapshot.StartTime) bool {
	return since != 0 && !h.snapshot.Boot.IsZero()
}
