package live

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Booking is a reservation of GPUs of a host that hasn't ended.
type Booking struct {
	ID     string            `json:"id"`
	User   snapshot.Username `json:"user,omitempty"`
	GPUs   int               `json:"gpus"`
	From   time.Time         `json:"from"`
	Until  time.Time         `json:"until"`
	Reason string            `json:"reason,omitempty"`
}

// BookingsOf are those of a snapshot at a moment, by their start, and how many GPUs are reserved then; nil if
// that is unknown.
func BookingsOf(s *snapshot.Snapshot, at time.Time) (list []Booking, reserved *int) {
	if s.Reservations == nil {
		return nil, nil
	}
	clock, _ := s.Clock(at)
	_, now := snapshot.RunningAt(s.Reservations, clock)
	for i := range s.Reservations {
		if b := &s.Reservations[i]; b.Holds(clock) {
			list = append(list, Booking{b.ID, gpus.UserName(b.Username, &b.UID), b.GPUs, b.From, b.Until, b.Reason})
		}
	}
	slices.SortFunc(list, func(a, b Booking) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.ID, b.ID)) })
	return list, &now
}

// String says who has reserved what, in the zone of this machine.
func (r *Booking) String() string {
	s := fmt.Sprintf("%s reserved by %s from %s to %s", text.Plural(r.GPUs, "GPU"), gpus.ShownUser(r.User),
		snapshot.When(r.From.Local()), snapshot.When(r.Until.Local()))
	if r.Reason != "" {
		s += ": " + text.Quoted(r.Reason, maxReason)
	}
	return s
}

// maxReason is how many characters of a reason are shown.
const maxReason = 60

// hideReservations leaves out who has reserved, and why, except for users that are shown.
func hideReservations(list []Booking, shown func(snapshot.Username) bool) []Booking {
	list = slices.Clone(list)
	for i := range list {
		if !shown(list[i].User) {
			id := fnv.New64a() // its owner may have chosen it
			_, _ = id.Write([]byte(list[i].ID))
			list[i].ID, list[i].User, list[i].Reason = fmt.Sprintf("%016x", id.Sum64()), "", ""
		}
	}
	return list
}
