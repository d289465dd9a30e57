package enforce

import (
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/enforce/extension"
	"github.com/seed-3119e985/genv/snapshot"
)

// extend decides on the requests of users to keep attachments for longer.
func (j *judgement) extend() {
	extended := make(map[snapshot.Hostname]bool)
	for key := range j.next.Extended {
		extended[key.Host] = true
	}
	var hosts []extension.Host // on which something is asked for or extended
	for _, h := range j.hosts {
		if len(h.snapshot.Extensions) > 0 || extended[h.name] {
			hosts = append(hosts, extension.Host{Name: h.name, Snapshot: h.snapshot, Known: j.before.Hosts[h.name].Lost == "", Offer: h.offer})
		}
	}
	if decided := j.next.Extended.Judge(hosts, j.before.Time, j.now); !j.before.Observer {
		j.decided = decided
	}
}

// offer is what the policy offers for an environment; nil if it is exempt.
func (h *hostView) offer(eid snapshot.EnvID) *extension.Offer {
	env := h.envs.Get(eid)
	if env == nil || env.exempt {
		return nil
	}
	s := env.settings
	return &extension.Offer{Environment: env.env, Most: s.Extend, Limited: s.Idle != nil || s.MaxDuration > 0}
}

// extension is what is remembered of the user's requests about an attachment.
func (j *judgement) extension(h *hostView, env *envView, a contents.Attachment) extension.Use {
	return j.next.Extended.Of(h.name, env.env.UID, a.Device.Index)
}

// idleExtension is what is added to the present idle time of an attachment.
func (j *judgement) idleExtension(h *hostView, env *envView, a contents.Attachment, idle bool) time.Duration {
	use, added := j.extension(h, env, a).Idling(env.env.EID, a.Time, idle)
	if added > 0 || use.Idle == extension.IdleOver {
		j.next.Extended[extension.Key{Host: h.name, UID: env.env.UID, Index: a.Device.Index}] = use
	}
	return added
}

// mayExtend is what the user of an attachment may still ask for; 0 for nothing.
func (j *judgement) mayExtend(h *hostView, env *envView, a contents.Attachment) time.Duration {
	if h.snapshot.Extensions == nil || env.uid() == nil || j.extension(h, env, a).Added > 0 {
		return 0
	}
	return env.settings.Extend
}

// extensionEvents are about what was decided, and notify the users.
func (j *judgement) extensionEvents(tellUsers bool) []Event {
	var events []Event
	for i := range j.decided {
		d := &j.decided[i]
		e := Event{Kind: EventExtension, Host: d.Host, ID: d.ID, Extension: d, Text: d.String()}
		events = append(events, e)
		if tellUsers {
			events = append(events, e.of(EventNotify))
		}
	}
	return events
}
