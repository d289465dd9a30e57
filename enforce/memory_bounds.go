package enforce

import (
	"time"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
)

// What is remembered of one host, so that a host or a user who makes things up fills
// neither the controller's memory nor its file. Honest hosts have some hundreds.
const (
	// maxTimes is how many times Present, and Idle, may have of a host. Beyond that, the
	// users with the most times lose the newest of theirs: their warning periods start
	// again in each cycle, until older ones are over.
	maxTimes = 8192
	// maxKnown is how many findings of a host are remembered (Findings), and
	// maxKnownOfUser how many of one user there. Other findings have no events, except
	// for those that the plan acts on.
	maxKnown       = 8192
	maxKnownOfUser = 1024
)

// group is what times are counted by: if one user, or one rule, has many times, the
// others keep theirs.
type group struct {
	rule Rule
	user snapshot.Username
	uid  snapshot.UID // as the kernel reports it, where it is known
}

// boundTimes drops the times in Present beyond maxTimes per host.
func (j *judgement) boundTimes() {
	if len(j.next.Present) <= maxTimes {
		return // then no host has more
	}
	times := j.timesByHost()
	for _, h := range j.hosts {
		dropped := contents.NewestBeyond(times[h.name], maxTimes, func(key string) time.Time { return j.next.Present[key].Since })
		for _, key := range dropped {
			delete(j.next.Present, key)
		}
		j.noteDropped(h, "findings", len(dropped))
	}
}

// timesByHost are the keys in Present of findings, each once, by what they are about.
func (j *judgement) timesByHost() map[snapshot.Hostname]map[group][]string {
	hosts, seen := make(map[snapshot.Hostname]map[group][]string), make(map[string]bool)
	for i := range j.findings {
		f := &j.findings[i]
		if !f.ofOneHost() {
			continue
		}
		host, owner := f.Affects(), group{rule: f.Rule, user: f.User}
		if f.UID != nil {
			owner.uid = *f.UID
		}
		if hosts[host] == nil {
			hosts[host] = make(map[group][]string)
		}
		for _, key := range j.keys[i] {
			if !seen[key] {
				seen[key] = true
				hosts[host][owner] = append(hosts[host][owner], key)
			}
		}
	}
	return hosts
}

// ofOneHost reports whether one host alone is the cause of a finding. It is not if a
// user with devices on several hosts is over a cap.
func (f *Finding) ofOneHost() bool { return f.Count == nil || f.Count.Hosts <= 1 }

// boundIdle drops the times in Idle beyond maxTimes on a host.
func (j *judgement) boundIdle(h *hostView) {
	groups := make(map[group][]string)
	for _, env := range h.inOrder {
		owner := group{rule: RuleIdle, user: env.env.Username}
		for _, a := range env.Attachments {
			if key := idleKey(h, env, a); !j.next.Idle[key].IsZero() {
				groups[owner] = append(groups[owner], key)
			}
		}
	}
	dropped := contents.NewestBeyond(groups, maxTimes, func(key string) time.Time { return j.next.Idle[key] })
	for _, key := range dropped {
		delete(j.next.Idle, key)
	}
	j.noteDropped(h, "idle GPUs", len(dropped))
}

// noteDropped adds a note for the administrator, even if the host has maxNotes already.
// The text is the same in each cycle, so it leads to one event only.
func (j *judgement) noteDropped(h *hostView, what string, dropped int) {
	if dropped > 0 {
		j.notes = append(j.notes, Note{Host: h.name, Text: "there are too many " + what + " to remember since when each is there: " +
			"the newest ones of the users with the most are forgotten, so their warning periods begin again"})
	}
}

// knownBefore counts the findings of the plan that were known before.
func (j *judgement) knownBefore(plan *Plan) *contents.Room {
	r := &contents.Room{Max: maxKnown, MaxEach: maxKnownOfUser}
	if len(plan.Findings) <= maxKnownOfUser {
		return r // there is room for all
	}
	for i := range plan.Findings {
		f := &plan.Findings[i]
		if _, ok := j.before.Findings[f.ID]; ok {
			r.Add(f.Affects(), f.User)
		}
	}
	return r
}

// admit counts a finding that is new, and reports whether there is room to know it.
func (c *eventCollector) admit(f *Finding) bool {
	if f.ofOneHost() && c.room.Full(f.Affects(), f.User) {
		return false
	}
	c.room.Add(f.Affects(), f.User)
	return true
}
