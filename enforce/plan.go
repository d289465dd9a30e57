package enforce

import (
	"cmp"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
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
	// TellUsers has the users of findings notified on their terminals.
	TellUsers bool
}

// Held reports whether the safety limits held anything back.
func (plan *Plan) Held() bool { return len(plan.HeldUsers)+len(plan.HeldHosts) > 0 }

// Note is something that could not be judged.
type Note struct {
	Host snapshot.Hostname `json:"host,omitempty"`
	Text string            `json:"text"`
}

// Actions are the items of all orders. A process counts for its own user, or for that of a finding if that isn't known.
func (plan *Plan) Actions() []*safety.Action {
	users := make(map[string]snapshot.Username, len(plan.Findings))
	for i := range plan.Findings {
		users[plan.Findings[i].ID] = plan.Findings[i].User
	}
	return plan.actions(func(_ snapshot.Hostname, t *order.Termination) (user snapshot.Username) {
		if t.Process.Unproved() {
			return "" // it counts for no user
		}
		user = gpus.UserName(t.Process.CountedUser(), t.Process.CountedUID())
		for _, id := range t.Because {
			user = cmp.Or(user, users[id])
		}
		return user
	})
}
