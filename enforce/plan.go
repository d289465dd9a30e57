package enforce

import (
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// Plan is what was concluded.
type Plan struct {
	Findings []Finding
	// Orders are for the hosts that have something to do, in the cluster's order.
	Orders []order.OfHost
	// Notes say what could not be judged, and why nothing is done about it.
	Notes []Note
	// HeldUsers are those whose actions on a host the safety limits held back; in HeldHosts are
	// those against unknown users there. They are not in Orders.
	HeldUsers []safety.Held
	HeldHosts []safety.Held
	// Ask are hosts to ask at once, sorted: something is due there by a look that is too old to act on.
	Ask []snapshot.Hostname
	// ExemptDevices are those that are exempt, by host.
	ExemptDevices map[snapshot.Hostname][]snapshot.DeviceIndex
	// Uncounted are processes outside of environments, and their people, whom the policy's caps and idle don't see.
	Uncounted Uncounted
	// ForWaits is what commands that wait get by caps that hold as far as others wait, or could have.
	ForWaits []ForWait
	// Counts is what the caps count.
	Counts *Counts
	// TellUsers has the users of findings notified on their terminals.
	TellUsers bool
}

// Uncounted is how many processes of how many people don't count for caps; see non-env-processes: count.
type Uncounted struct{ Processes, People int }

// Held reports whether the safety limits held anything back.
func (plan *Plan) Held() bool { return len(plan.HeldUsers)+len(plan.HeldHosts) > 0 }

// Note is something that could not be judged.
type Note struct {
	Host snapshot.Hostname `json:"host,omitempty"`
	Text string            `json:"text"`
}
