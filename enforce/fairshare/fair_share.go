package fairshare

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Setting is `fair-share:` of a policy. The zero Setting is off.
type Setting struct {
	// Boost is how many devices more than their cap light users may have.
	Boost int
	// Free is the share of the known devices, in per cent, that must be unattached and unused.
	Free int
}

// String is the setting for people.
func (s Setting) String() string {
	if s.Boost == 0 {
		return "off"
	}
	return fmt.Sprintf("%d more for users under an equal share, while %d%% of the devices are free", s.Boost, s.Free)
}

// Days is the time that an equal share is of.
const Days = 30

// Usage is who had how many devices for how long in the last Days. The zero Usage is unknown.
type Usage struct {
	// Until is the end of what is known, and Known for how long something is known.
	Until time.Time
	Known time.Duration
	// Attached are device seconds of users with a name. Unknown ones, of hosts that did not
	// answer, count against the user alone.
	Attached map[snapshot.Username]Seconds
	// Partial says that users are missing in Attached who had something.
	Partial bool
}

// Seconds are those of devices.
type Seconds struct{ Attached, Unknown int64 }

const (
	// leastKnown is for how much of the time usage must be known: a user who had nothing for a
	// day only may have had much before.
	leastKnown = 7 * 24 * time.Hour
	// mostAge is how old usage may be. It is read much more often.
	mostAge = 6 * time.Hour
)

// known reports whether it is usable.
func (u *Usage) known(now time.Time) bool {
	age := now.Sub(u.Until)
	return u.Attached != nil && u.Known >= leastKnown && age <= mostAge && age >= -mostAge
}

// equal is an equal share of the users who had something, in device seconds; 0 if none had.
func (u *Usage) equal() float64 {
	sum, users := 0.0, 0.0
	for _, s := range u.Attached {
		if s.Attached > 0 {
			sum += float64(s.Attached)
			users++
		}
	}
	return sum / max(users, 1)
}

// Users are light below the first part of an equal share, and for as long as they have less
// than one.
const lightBelow = 0.9

// light reports whether a user had less than an equal share. was says whether that was so
// before.
func (u *Usage) light(user snapshot.Username, equal float64, was bool) bool {
	had, found := u.Attached[user]
	if !found && u.Partial || equal <= 0 {
		return false
	}
	limit := equal * lightBelow
	if was {
		limit = equal
	}
	return float64(had.Attached)+float64(had.Unknown) < limit
}
