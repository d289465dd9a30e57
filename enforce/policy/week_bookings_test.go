package policy_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/rules"
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

// Others are told half an hour before a reservation, lose what it lacks when it begins, and no more when a GPU fails.
func TestReservationsOfASite(t *testing.T) {
	file := ofSite(t, "10")
	file.UnixGroups = unix(map[string]string{"lab": "ada"})
	at := func(hour, minute int) time.Time { return time.Date(2026, 11, 24, hour, minute, 0, 0, time.UTC) }
	booked := snapshot.Reservation{ID: "r", UID: uidOf(t, "ada"), Username: "ada", GPUs: 2, From: at(9, 0), Until: at(21, 0), Made: at(-12, 0), Known: 3}
	rule, known := file.ReservationRule("ada")
	require.True(t, known)
	next := snapshot.Reservation{GPUs: 2, From: at(32, 0), Until: at(44, 0)}
	require.Equal(t, "you have 1 reservation, and 1 may be at once, on all hosts together: ask again after Tue 2026-11-24 21:00 UTC, for a start from Wed 2026-11-25 21:00 UTC", rule.TooMany([]snapshot.Reservation{booked}, &next, at(-12, 0)))
	a := site{name: "a", has: []has{{"ben", 2, "busy"}}, free: 1}
	memory, plan := enforce.Memory{}, enforce.Plan{}
	for now := at(8, 0); now.Before(at(12, 0)); now = now.Add(5 * time.Minute) {
		if now.Equal(at(10, 0)) {
			a.free, a.failed = 1, 1
		}
		h := a.host(t, at(8, 0))
		h.AskedAt, h.Snapshot.Skew, h.Snapshot.Reservations = now, new(time.Duration), []snapshot.Reservation{booked}
		plan, memory, _ = rules.Judge(file, snapshot.Cluster{Hosts: []snapshot.Host{h}}, memory, now)
		told := slices.ContainsFunc(plan.Findings, func(f enforce.Finding) bool { return f.User == "ben" })
		require.Equal(t, !now.Before(at(8, 30)) && !now.After(at(9, 0)), told, now)
		require.Equal(t, now.Equal(at(9, 0)), len(plan.Orders) == 1, now)
		for _, o := range plan.Orders {
			require.Len(t, o.Order.Detach, 1)
			a.has[0].gpus, a.free = 1, 2
		}
	}
}
