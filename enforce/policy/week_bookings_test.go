package policy_test

import (
	"fmt"
	"slices"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// labBooking is a reservation of a person on a host.
type labBooking struct {
	snapshot.Reservation
	user, host int
	job        int // the owner's, once it began
}

// othersOn are how many working GPUs people other than one have on a host.
func (l *lab) othersOn(host, user int) (n int) {
	for _, j := range l.jobs {
		for _, gpu := range j.gpus {
			if j.host == host && j.user != user && !l.broken[fmt.Sprintf("%d/%d", host, gpu)] {
				n++
			}
		}
	}
	return n
}

func (l *lab) working(host int) (n int) {
	for gpu := range labGPUs {
		if !l.broken[fmt.Sprintf("%d/%d", host, gpu)] {
			n++
		}
	}
	return n
}

// left is what a booking leaves to others.
func (l *lab) left(b *labBooking) int { return min(l.working(b.host), labGPUs-b.GPUs) }

// mayStart is what root's service refuses while a reservation runs.
func (l *lab) mayStart(user, host, n int) bool {
	for _, b := range l.bookings {
		if b.host == host && b.user != user && b.Runs(l.now) && l.othersOn(host, b.user)+n > l.left(b) {
			return false
		}
	}
	return true
}

// book has people book, come or not, and checks that who comes finds the GPUs as far as they work.
func (l *lab) book() {
	user, host := l.random.IntN(labPeople), l.random.IntN(labHosts)
	overlaps := slices.ContainsFunc(l.bookings, func(b *labBooking) bool { return b.host == host && b.Holds(l.now) })
	if !overlaps && l.random.IntN(20) == 0 {
		l.next++
		from := l.now.Add(time.Hour + time.Duration(l.random.IntN(6))*time.Hour).UTC()
		l.bookings = append(l.bookings, &labBooking{user: user, host: host, Reservation: snapshot.Reservation{
			ID: fmt.Sprint("r", l.next), UID: snapshot.UID(1000 + user), Username: personName(user), GPUs: 1 + l.random.IntN(5),
			From: from, Until: from.Add(3 * time.Hour), Made: l.now.UTC(), Known: labGPUs,
		}})
	}
	for _, b := range l.bookings {
		late := l.now.Sub(b.From)
		if !b.Runs(l.now) || b.job != 0 || late < 10*time.Minute { // who attached last has a quarter of the warning
			continue
		}
		if late > 30*time.Minute {
			b.Ended, b.Lapsed = new(l.now.UTC()), true
			continue
		}
		if b.GPUs%5 == 0 { // they don't come
			continue
		}
		free := l.free(b.host, nil)
		n := min(b.GPUs, l.working(b.host)-l.left(b))
		kept := slices.ContainsFunc(l.waits, func(w *labWait) bool { return w.host == b.host && len(w.kept) > 0 })
		if !kept && l.othersOn(b.host, b.user)+b.GPUs <= labGPUs {
			own := l.working(b.host) - len(free) - l.othersOn(b.host, b.user)
			require.GreaterOrEqual(l.t, len(free)+own, n, "%s finds its GPUs", b.ID)
		}
		if l.now.Sub(l.failed[b.host]) > time.Hour { // a GPU that works again is warned for, too
			require.LessOrEqual(l.t, l.othersOn(b.host, b.user), l.left(b), "others have what is left, %s", b.ID)
		}
		if len(free) > 0 {
			l.start(b.user, b.host, free[:min(len(free), b.GPUs)])
			b.job = l.next
			l.kept++
		}
	}
}
