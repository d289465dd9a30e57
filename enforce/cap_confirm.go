package enforce

import (
	"slices"
	"time"
)

// sameMoment is how far apart looks at hosts may be that count as one: nothing moves from host to host within it.
const sameMoment = FreshFor / 10

// confirmed reports whether the looks at the hosts on which a cap counts something are fresh, and of one moment.
// Otherwise these hosts are asked once more: somebody who moved a job to another host would be counted twice.
func (j *judgement) confirmed(f *Finding) bool {
	var counted []*hostView
	for _, name := range append(slices.Clip(f.CountedOn), "") { // this machine has no name
		if h := j.byName[name]; h != nil {
			counted = append(counted, h)
		}
	}
	f.Pending, f.Deferred = true, true // unless they are
	if len(j.waiting) > 0 || slices.ContainsFunc(counted, func(h *hostView) bool { return h.acted }) {
		return false // what an order did there has to show itself first
	}
	var newest time.Time
	underWay := false // then a look shows what an order is doing: the next tick brings one
	for _, h := range counted {
		if h.isNew || j.now.Sub(h.at) <= FreshFor {
			newest = later(newest, h.at)
		}
		underWay = underWay || h.UnderWay.Orders > 0
	}
	p, since := j.next.Present[f.ID], j.now // if all are old
	if !newest.IsZero() {
		since = newest.Add(-sameMoment)
	}
	if again := p.AskedAgain; !again.IsZero() && again.Before(since) {
		since = again
	}
	old := slices.DeleteFunc(counted, func(h *hostView) bool { return !h.at.Before(since) })
	switch {
	case len(old) == 0:
		p.AskedAgain, f.Pending, f.Deferred = time.Time{}, false, false
	case p.AskedAgain.IsZero() && !underWay:
		p.AskedAgain = j.now
		for _, h := range old {
			j.ask[h.name] = true
		}
	}
	j.next.Present[f.ID] = p
	return len(old) == 0
}
