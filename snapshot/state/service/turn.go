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
	keepBackFor = 30 * time.Minute // free GPUs are kept for the first wait this long, then open to others this long
	overdue     = 24 * time.Hour   // after this long a wait goes before all younger waits
)

// keptBack is the first wait with too few free GPUs. The time for which they are kept is its user's.
type keptBack struct {
	id     string        // empty for none
	since  time.Duration // 0 before any are kept
	uid    snapshot.UID  // the user with whom the time began
	served bool          // a wait of this user began or ended since
}

func (h keptBack) keeps(now time.Duration) bool {
	return h.id != "" && (h.since == 0 || now-h.since < keepBackFor)
}

// decide says which waits get which GPUs: overdue ones first, then the user with the fewest GPUs (have), then the
// oldest; users who let an offer pass come last. last is from the previous call.
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
	if next.id == "" { // no wait has GPUs kept
		next = last
		next.id = ""
	}
	return given, next
}

// passedTo returns h with w as the first wait. begins: the previous first wait begins. anything: free GPUs could be
// kept. The time runs on, so that many waits, or short jobs in a loop, keep GPUs no longer than one. It restarts after
// 2*keepBackFor, or for another user once a wait of the previous user is over.
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

// QueuePlace is a wait's place in the queue of a host.
type QueuePlace struct {
	Number int `json:"place"` // the person's, from 1
	People int `json:"people"`
	GPUs   int `json:"gpus"` // still needed
	Free   int `json:"free"` // how many of these are free

	First  *snapshot.Wait `json:"first,omitempty"`      // the first wait, if another person's
	Own    int            `json:"own_before,omitempty"` // the person's waits ahead of it
	Barred string         `json:"barred_by,omitempty"`  // why others overtake it; empty if they don't

	Freed    []snapshot.DeviceIndex `json:"freed,omitempty"`    // GPUs that a controller frees for it
	Possible *int                   `json:"possible,omitempty"` // how many GPUs it can have; nil: enough, or unknown
	Offered  []snapshot.DeviceIndex `json:"offered,omitempty"`  // kept for it for a minute; then no other field is set
}

// tell sends waits their changed places in the queue; q.mu is held.
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
