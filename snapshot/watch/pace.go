package watch

import (
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

const (
	floor = 100 * time.Millisecond // between the begins of two looks
	// delay is an opener's time to start using the device. After delayFree looks in vain, a user's openers get longer,
	// up to delayMost: most only ask for GPUs and end before.
	delay     = 20 * time.Millisecond
	delayFree = 5
	delayMost = 2 * time.Second
	// followUps is the number of further looks for an opener that doesn't use the device yet. The first quickLooks come
	// as soon as the floor allows; then their distance doubles.
	followUps   = 8
	quickLooks  = 3
	processMost = time.Minute      // between looks for one process that opens devices repeatedly
	unknownMost = 5 * time.Second  // for unknown processes
	forgetAfter = 10 * time.Minute // for looks in vain at a user's openers
)

const maxOfParty = 64 // distinct openers of a party

// party is what caused a look: a user (the uid), or one of these.
type party int64

const (
	unknownOpener party = -1 - iota // unknown processes
	stateFiles
	processEnds
	openedBefore // processes that opened a device before watching began
)

// opener is a process that opened a device; the zero opener is all others of a party.
type opener struct {
	pid   snapshot.PID
	start snapshot.StartTime
}

type source struct {
	party party
	opener
}

type reason struct {
	due       time.Time // zero without a further event
	looked    time.Time // the last look for it
	fruitless int       // consecutive looks for it without news
}

// pace decides when to look. It has no clock.
type pace struct {
	reasons map[source]*reason
	count   map[party]int     // openers in reasons
	parties map[party]*reason // consecutive openers that were not worth a look, and the last one's time
	begun   time.Time         // begin of the last look
	looking map[source]bool   // causes of the look in progress; nil for none
}

func newPace() *pace {
	return &pace{reasons: make(map[source]*reason), count: make(map[party]int), parties: make(map[party]*reason)}
}

// begins starts watching. Earlier openers get looks, since they may use the device soon, without an event.
func (p *pace) begins(now time.Time) {
	s := source{party: openedBefore}
	p.reasons[s] = &reason{due: now, fruitless: followUps - 3}
	p.count[s.party]++
}

func (p *pace) happened(s source, now time.Time) {
	r := p.reasons[s]
	if r == nil && s.opener != (opener{}) && p.count[s.party] >= maxOfParty {
		s.opener = opener{}
		r = p.reasons[s]
	}
	if r == nil {
		r = &reason{}
		p.reasons[s] = r
		p.count[s.party]++
	}
	due := now.Add(p.delay(s.party, now))
	if rested := r.looked.Add(s.rest(r.fruitless)); rested.After(due) && r.fruitless > 0 {
		due = rested
	}
	if r.due.IsZero() || due.Before(r.due) {
		r.due = due
	}
}

func (p *pace) delay(of party, now time.Time) time.Duration {
	known := p.parties[of]
	switch {
	case of == stateFiles, of == processEnds:
		return 0
	case known == nil || known.fruitless < delayFree:
		return delay
	case now.Sub(known.looked) > forgetAfter:
		delete(p.parties, of)
		return delay
	}
	return doubled(floor, known.fruitless-delayFree, delayMost)
}

// rest is the minimum time after so many consecutive looks without news.
func (s source) rest(fruitless int) time.Duration {
	switch {
	case s.party == processEnds:
		return 0
	case s.opener == opener{}:
		return doubled(floor, fruitless-quickLooks, unknownMost)
	}
	return doubled(floor, fruitless-quickLooks, processMost)
}

func doubled(d time.Duration, times int, most time.Duration) time.Duration {
	for ; times > 0 && d < most; times-- {
		d *= 2
	}
	return min(d, most)
}

func (p *pace) next() (at time.Time, ok bool) {
	if p.looking != nil {
		return at, false
	}
	for _, r := range p.reasons {
		if !r.due.IsZero() && (!ok || r.due.Before(at)) {
			at, ok = r.due, true
		}
	}
	if earliest := p.begun.Add(floor); ok && at.Before(earliest) {
		at = earliest
	}
	return at, ok
}

// isDue reports whether to look now. It forgets openers that have ended.
func (p *pace) isDue(now time.Time, alive func(opener) bool) bool {
	due := false
	for s, r := range p.reasons {
		switch {
		case r.due.IsZero() || r.due.After(now):
		case s.opener != (opener{}) && !alive(s.opener):
			p.forget(s)
		default:
			due = true
		}
	}
	return due
}

func (p *pace) forget(s source) {
	delete(p.reasons, s)
	if p.count[s.party]--; p.count[s.party] <= 0 {
		delete(p.count, s.party)
	}
}

func (p *pace) lookBegins(now time.Time) {
	p.begun = now
	p.looking = make(map[source]bool)
	for s, r := range p.reasons {
		if !r.due.IsZero() {
			p.looking[s] = true
			r.due, r.looked = time.Time{}, now
		}
	}
}

// lookEnds notes whether a look showed anything new, and who uses a device. A failed look shows nothing.
func (p *pace) lookEnds(now time.Time, changed bool, uses func(snapshot.PID) bool, alive func(opener) bool) {
	for s := range p.looking {
		if r := p.reasons[s]; r != nil {
			p.judge(s, r, now, changed, s.pid != 0 && uses(s.pid))
		}
	}
	p.looking = nil
	for s, r := range p.reasons { // without a due look
		if r.due.IsZero() && s.opener != (opener{}) && !alive(s.opener) {
			p.forget(s)
		}
	}
}

func (p *pace) judge(s source, r *reason, now time.Time, changed, uses bool) {
	if changed {
		r.fruitless = 0
		delete(p.parties, s.party)
	}
	opened := s.party != stateFiles && s.party != processEnds
	if !changed && opened && r.fruitless == 0 {
		known := p.parties[s.party]
		if known == nil {
			known = &reason{}
			p.parties[s.party] = known
		}
		known.fruitless, known.looked = known.fruitless+1, now
	}
	if !changed || opened && !uses {
		r.fruitless++
	}
	rested := r.looked.Add(s.rest(r.fruitless))
	switch {
	case r.due.IsZero() && opened && !uses && r.fruitless <= followUps:
		r.due = rested
	case !r.due.IsZero() && r.fruitless > 0 && r.due.Before(rested): // again during the look
		r.due = rested
	}
}
