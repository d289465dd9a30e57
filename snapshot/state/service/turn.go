package service

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

const (
	keepBackFor = 30 * time.Minute // how long free GPUs are kept for the first wait; then others pass it for as long
	overdue     = 24 * time.Hour   // after how long a wait goes before all younger waits
)

// candidate is a wait as decide sees it. Times are since boot.
type candidate struct {
	id     string
	uid    snapshot.UID
	gpus   int                    // that it still needs
	free   []snapshot.DeviceIndex // that it could have now, the best ones first
	since  time.Duration
	barred bool // by a cap, by reservations, or since too few GPUs work: it keeps its place, and is passed over
	behind bool // all others, as its user let an offer pass
}

// keptBack is the first wait for which too few GPUs are free. The time for which these are kept back is its user's.
type keptBack struct {
	id     string        // empty if there is no such wait
	since  time.Duration // 0 before GPUs are kept back
	uid    snapshot.UID  // of the wait with which the time began
	served bool          // this user's wait has begun or ended since
}

// keeps says whether free GPUs are kept back, rather than given to the waits behind.
func (h keptBack) keeps(now time.Duration) bool {
	return h.id != "" && (h.since == 0 || now-h.since < keepBackFor)
}

// decide says which waits get which GPUs. Overdue waits come first, then the person with the fewest GPUs (have), then
// the oldest wait; a user who let an offer pass comes last. last is the keptBack that the call before returned.
func decide(
	candidates []candidate, have map[snapshot.UID]int, last keptBack, now time.Duration,
) (given map[string][]snapshot.DeviceIndex, next keptBack) {
	rest := slices.DeleteFunc(slices.Clone(candidates), func(c candidate) bool { return c.barred })
	given, have = make(map[string][]snapshot.DeviceIndex), maps.Collect(maps.All(have))
	taken := make(map[snapshot.DeviceIndex]bool)
	for inOrder(rest, have, now); len(rest) > 0; {
		c := rest[0]
		rest = rest[1:]
		free := slices.DeleteFunc(slices.Clone(c.free), func(i snapshot.DeviceIndex) bool { return taken[i] })
		if begins := len(free) >= c.gpus; begins {
			free = free[:c.gpus]
			given[c.id] = free
			have[c.uid] += c.gpus
			inOrder(rest, have, now)
		} else if next.id != "" {
			continue
		} else if next = last.passedTo(&c, given[last.id] != nil, len(free) > 0, now); !next.keeps(now) {
			continue
		}
		for _, index := range free {
			taken[index] = true
		}
	}
	if next.id == "" {
		next = last.without()
	}
	return given, next
}

// without is h while GPUs are kept back for no wait.
func (h keptBack) without() keptBack {
	h.id = ""
	return h
}

// passedTo is h now that c is the first wait. begins says whether the first wait before begins, and anything whether
// there are free GPUs to keep. The time goes on, so that many waits, or short jobs in a loop, keep GPUs back no longer
// than one wait. It begins again after 2*keepBackFor, or for another user once a wait of the user before is over.
func (h keptBack) passedTo(c *candidate, begins, anything bool, now time.Duration) keptBack {
	h.served = h.served || begins || h.id == ""
	h.id = c.id
	if begun := h.since != 0 && now-h.since < 2*keepBackFor; anything && (!begun || h.served && h.uid != c.uid) {
		h.since, h.uid, h.served = now, c.uid, false
	}
	return h
}

func inOrder(list []candidate, have map[snapshot.UID]int, now time.Duration) {
	rank := func(c candidate) (rank, has int) {
		switch {
		case c.behind:
			return 2, have[c.uid]
		case now-c.since > overdue:
			return 0, 0
		}
		return 1, have[c.uid]
	}
	slices.SortFunc(list, func(a, b candidate) int {
		rankA, hasA := rank(a)
		rankB, hasB := rank(b)
		return cmp.Or(rankA-rankB, hasA-hasB, cmp.Compare(a.since, b.since), cmp.Compare(a.id, b.id))
	})
}

// Place is where a wait is in the queue of a host.
type Place struct {
	Number int `json:"place"` // of the person, from 1
	People int `json:"people"`
	GPUs   int `json:"gpus"` // that it still needs
	Free   int `json:"free"` // of those that suit it

	First  *snapshot.Wait `json:"first,omitempty"`      // the wait that comes first, if it is another person's
	Own    int            `json:"own_before,omitempty"` // waits of the same person before it
	Barred string         `json:"barred_by,omitempty"`  // why others pass it; empty if they don't

	Freed    []snapshot.DeviceIndex `json:"freed,omitempty"`    // GPUs that a controller takes back for it
	Possible *int                   `json:"possible,omitempty"` // GPUs it can have, if said to be too few
	Offered  []snapshot.DeviceIndex `json:"offered,omitempty"`  // kept for it for a minute; no other field is set then
}

// tell sends each wait its place in the queue, if it has changed; q.mu is held.
func (q *waits) tell(sorted []candidate, waiting map[string]*wait, now time.Duration) {
	people, own := make(map[snapshot.UID]int), make(map[snapshot.UID]int)
	for _, c := range sorted {
		if people[c.uid] == 0 {
			people[c.uid] = len(people) + 1
		}
	}
	first := waiting[sorted[0].id]
	for _, c := range sorted {
		w := waiting[c.id]
		p := Place{
			Number: people[c.uid], People: len(people), GPUs: c.gpus, Free: len(c.free), Own: own[c.uid],
			Barred: w.barred,
		}
		own[c.uid]++
		if n, known := q.possible[c.id]; known {
			p.Possible = &n
		}
		for _, o := range q.offers {
			if o.id == c.id && !o.told {
				p.Freed = o.gpus
			}
		}
		if first.UID != w.UID {
			shown := first.Wait
			shown.ID, shown.Seconds = "", int64((now - first.Since).Truncate(time.Minute).Seconds())
			p.First = &shown
		}
		if !reflect.DeepEqual(w.place, p) {
			w.place = p
			w.say(Answer{Waiting: &p})
		}
	}
}
