package enforce

import (
	"fmt"

	"github.com/seed-3119e985/genv/snapshot/strictyaml"
)

// RuleReservations is about what people have of a host beyond what reservations of others leave them.
const RuleReservations Rule = "reservations"

var reservationsRule = rule{
	Setting: Setting{strictyaml.Setting[Settings]{ // nothing switches it on, and an exemption off
		Key: string(RuleReservations), Copy: func(s, _ *Settings) { s.IgnoreReservations = true },
	}, ByHost | ByUser},
	advice: "End jobs that you need less here, or use another host; genv reserve --list shows what is reserved.",
	line: func(f Finding) string {
		switch {
		case f.Booking != nil:
			return fmt.Sprintf("User %s: %s", f.User, f.Booking.Text)
		case f.Cap == nil: // of another version
			return "GPUs are reserved"
		}
		return fmt.Sprintf("User %s is to give back GPUs: %s; others have %s here, and %s left", f.User, f.Cap.Name,
			f.Cap.Amount(f.Cap.Used), f.Cap.allowed())
	},
}

// BookingTrouble is what is wrong with a reservation. Its owner is told.
type BookingTrouble struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"`    // too-many or too-few-gpus
	Text    string `json:"text"`    // begins with "reservation"
	Follows string `json:"follows"` // what that means for the owner
}

const (
	BookedTooMany = "too-many"
	TooFewGPUs    = "too-few-gpus"
)

func (t *BookingTrouble) advice() string {
	if t.Kind == TooFewGPUs {
		return "Use another host for what it lacks, or cancel it: genv reserve --cancel " + t.ID
	}
	return "Cancel one, here or on another host: genv reserve --list shows yours, genv reserve --cancel ID ends one."
}
