package enforce

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// What is remembered of one host, so that a host or a user who makes things up fills
// neither the controller's memory nor its file. Honest hosts have some hundreds.
const (
	// maxTimes is since when things are there (Present) or idle (Idle), of each at most
	// so many. If there are more, those of the users with the most are dropped, the
	// newest first: their warning periods begin again in each cycle, until the older
	// ones are over.
	maxTimes = 8192
	// maxKnown is how many findings of a host are known (Findings), and maxKnownOfUser
	// how many of one user there. Events are about these alone; what the plan acts on
	// has one in any case.
	maxKnown       = 8192
	maxKnownOfUser = 1024
)

// group is whose times they are: no rule and no user loses any to another one's many.
type group struct {
	rule Rule
	user snapshot.Username
	uid  snapshot.UID // as the kernel reports it, where it is known
}

// boundTimes drops what is too much of Present.
func (j *judgement) boundTimes() {
	counts, many := make(map[snapshot.Hostname]int), false
	for i := range j.findings {
		if f := &j.findings[i]; f.ofOneHost() {
			counts[f.affects()] += len(j.keys[i])
			many = many || counts[f.affects()] > maxTimes
		}
	}
	if !many {
		return
	}
	for _, h := range j.hosts {
		if counts[h.name] <= maxTimes {
			continue
		}
		dropped := newest(j.timesOn(h), func(key string) time.Time { return j.next.Present[key].Since })
		for _, key := range dropped {
			delete(j.next.Present, key)
		}
		j.noteDropped(h, "findings", len(dropped))
	}
}

// timesOn are the keys in Present of a host's findings, each once.
func (j *judgement) timesOn(h *hostView) map[group][]string {
	groups, seen := make(map[group][]string), make(map[string]bool)
	for i := range j.findings {
		f := &j.findings[i]
		if !f.ofOneHost() || f.affects() != h.name {
			continue
		}
		whose := group{rule: f.Rule, user: f.User}
		if f.UID != nil {
			whose.uid = *f.UID
		}
		for _, key := range j.keys[i] {
			if !seen[key] {
				seen[key] = true
				groups[whose] = append(groups[whose], key)
			}
		}
	}
	return groups
}

// ofOneHost reports whether a finding is the doing of one host: a user who is over a
// cap on several hosts is not.
func (f *Finding) ofOneHost() bool { return f.Count == nil || f.Count.Hosts <= 1 }

// boundIdle drops what is too much of Idle on a host.
func (j *judgement) boundIdle(h *hostView) {
	groups := make(map[group][]string)
	for _, env := range h.inOrder {
		whose := group{rule: RuleIdle, user: env.env.Username}
		for _, a := range env.attachments {
			if key := idleKey(h, env, a); !j.next.Idle[key].IsZero() {
				groups[whose] = append(groups[whose], key)
			}
		}
	}
	dropped := newest(groups, func(key string) time.Time { return j.next.Idle[key] })
	for _, key := range dropped {
		delete(j.next.Idle, key)
	}
	j.noteDropped(h, "idle devices", len(dropped))
}

// noteDropped has the administrator know, whatever else there is to note. The text is
// the same in each cycle, so that it is an event once.
func (j *judgement) noteDropped(h *hostView, what string, dropped int) {
	if dropped > 0 {
		j.notes = append(j.notes, Note{Host: h.name, Text: "there are too many " + what + " to remember since when each is there: " +
			"the newest ones of the users with the most are forgotten, so their warning periods begin again"})
	}
}

// newest are the keys that are too many: the groups with the most lose the newest of
// theirs, until maxTimes are left.
func newest(groups map[group][]string, since func(key string) time.Time) (dropped []string) {
	sizes := make([]int, 0, len(groups))
	for _, keys := range groups {
		sizes = append(sizes, len(keys))
	}
	share := fairShare(sizes, maxTimes)
	type dated struct {
		key   string
		since time.Time
	}
	for _, keys := range groups {
		if len(keys) <= share {
			continue
		}
		all := make([]dated, len(keys))
		for i, key := range keys {
			all[i] = dated{key, since(key)}
		}
		slices.SortFunc(all, func(a, b dated) int { return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.key, b.key)) })
		for _, d := range all[share:] {
			dropped = append(dropped, d.key)
		}
	}
	return dropped
}

// fairShare is how much each may have, at most, so that all together have no more than
// the limit. What some leave is for the others.
func fairShare(sizes []int, limit int) int {
	slices.Sort(sizes)
	for i, size := range sizes {
		if share := limit / (len(sizes) - i); size > share {
			return share
		}
		limit -= size
	}
	return math.MaxInt
}

// known counts the findings that are remembered, by host and by user.
type known struct {
	onHost map[snapshot.Hostname]int
	ofUser map[ownerOn]int
}

// ownerOn is a user on a host.
type ownerOn struct {
	host snapshot.Hostname
	user snapshot.Username
}

// knownBefore counts the findings of the plan that were known before.
func (j *judgement) knownBefore(plan *Plan) known {
	k := known{make(map[snapshot.Hostname]int), make(map[ownerOn]int)}
	if len(plan.Findings) <= maxKnownOfUser {
		return k // there is room for all
	}
	for i := range plan.Findings {
		f := &plan.Findings[i]
		if _, ok := j.before.Findings[f.ID]; ok {
			k.onHost[f.affects()]++
			k.ofUser[ownerOn{f.affects(), f.User}]++
		}
	}
	return k
}

// admit counts a finding that is new, and reports whether there is room to know it.
func (k known) admit(f *Finding) bool {
	on := ownerOn{f.affects(), f.User}
	if f.ofOneHost() && (k.onHost[on.host] >= maxKnown || k.ofUser[on] >= maxKnownOfUser) {
		return false
	}
	k.onHost[on.host]++
	k.ofUser[on]++
	return true
}
