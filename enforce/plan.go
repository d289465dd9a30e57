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
	Orders []HostOrder
	// Notes say what could not be judged, and why nothing is done about it.
	Notes []Note
	// HeldUsers are those whose actions on a host the safety limits held back; in HeldHosts are
	// those against unknown users there. They are not in Orders.
	HeldUsers []safety.Held
	HeldHosts []safety.Held
	// Untyped are the hosts that are to be asked for the types of processes (snapshot.WithTypes)
	// and judged again before anything is done there, or said: processes would end of which it
	// isn't known whether they belong to a desktop.
	Untyped []snapshot.Hostname
	// TellUsers has the users of findings notified on their terminals.
	TellUsers bool
}

// Held reports whether the safety limits held anything back.
func (p *Plan) Held() bool { return len(p.HeldUsers)+len(p.HeldHosts) > 0 }

// HostOrder is the order of one host.
type HostOrder struct {
	Host  snapshot.Hostname
	Order order.Order
}

// Note is something that could not be judged.
type Note struct {
	Host snapshot.Hostname `json:"host,omitempty"`
	Text string            `json:"text"`
}
