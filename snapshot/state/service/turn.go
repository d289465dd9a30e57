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

// keptBack is the first wait for which too few GPUs are free. The time for which these are kept back is its user's.
type keptBack struct {
	id     string        // empty if there is no such wait
	since  time.Duration // 0 before GPUs are kept back
	uid    snapshot.UID  // of the wait with which the time began
	served bool          // this user's wait has begun or ended since
}

func (h keptBack) keeps(now time.Duration) bool {
	return h.id != "" && (h.since == 0 || now-h.since < keepBackFor)
}

// decide says which waits get which GPUs. Overdue waits come first, then the person with the fewest GPUs (have), then
// the oldest wait; a user who let an offer pass comes last. last is the keptBack that the call before returned.
func decide(
	list []*wait, have map[snapshot.UID]int, last keptBack, now time.Duration,
) (given map[*wait][]snapshot.DeviceIndex, next keptBack) {
	rest := slices.DeleteFunc(slices.Clone(list), func(w *wait) bool { return w.barred != "" })
	given, have = make(map[*wait][]snapshot.DeviceIndex), maps.Collect(maps.All(have))
	taken, lastBegins := make(map[snapshot.DeviceIndex]bool), false
	for inOrder(rest, have, now); len(rest) > 0; {
		w := rest[0]
		rest = rest[1:]
		free := slices.DeleteFunc(slices.Clone(w.free), func(i snapshot.DeviceIndex) bool { return taken[i] })
		if len(free) >= w.missing {
			free = free[:w.missing]
			given[w] = free
			lastBegins = lastBegins || w.ID == last.id
			have[w.UID] += w.missing
			inOrder(rest, have, now)
		} else if next.id != "" {
			continue
		} else if next = last.passedTo(w, lastBegins, len(free) > 0, now); !next.keeps(now) {
			continue
		}
		for _, index := range free {
			taken[index] = true
		}
	}
	if next.id == "" { // GPUs are kept back for no wait
		next = last
		next.id = ""
	}
	return given, next
}

// passedTo is h now that w is the first wait. begins says whether the first wait before begins, and anything whether
// there are free GPUs to keep. The time goes on, so that many waits, or short jobs in a loop, keep GPUs back no longer
// than one wait. It begins again after 2*keepBackFor, or for another user once a wait of the user before is over.
func (h keptBack) passedTo(w *wait, begins, anything bool, now time.Duration) keptBack {
	h.served = h.served || begins || h.id == ""
	h.id = w.ID
	if begun := h.since != 0 && now-h.since < 2*keepBackFor; anything && (!begun || h.served && h.uid != w.UID) {
		h.since, h.uid, h.served = now, w.UID, false
	}
	return h
}

func inOrder(list []*wait, have map[snapshot.UID]int, now time.Duration) {
	rank := func(w *wait) (rank, has int) {
		switch {
		case w.behind:
			return 2, have[w.UID]
		case now-w.Since > overdue:
			return 0, 0
		}
		return 1, have[w.UID]
	}
	slices.SortFunc(list, func(a, b *wait) int {
		rankA, hasA := rank(a)
		rankB, hasB := rank(b)
		return cmp.Or(rankA-rankB, hasA-hasB, cmp.Compare(a.Since, b.Since), cmp.Compare(a.ID, b.ID))
	})
}

// QueuePlace is where a wait is in the queue of a host.
type QueuePlace struct {
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
func (q *waits) tell(sorted []*wait, now time.Duration) {
	people, own := make(map[snapshot.UID]int), make(map[snapshot.UID]int)
	for _, w := range sorted {
		if people[w.UID] == 0 {
			people[w.UID] = len(people) + 1
		}
	}
	first := sorted[0]
	for _, w := range sorted {
		p := QueuePlace{
			Number: people[w.UID], People: len(people), GPUs: w.missing, Free: len(w.free), Own: own[w.UID],
			Barred: w.barred,
		}
		own[w.UID]++
		if n, known := q.possible[w.ID]; known {
			p.Possible = &n
		}
		for _, o := range q.offers {
			if o.id == w.ID && !o.told {
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
