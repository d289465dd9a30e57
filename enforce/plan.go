package enforce

import (
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// FreshFor is how old a look may be on which something is done, unless it has just come.
const FreshFor = 2 * time.Second

// MaxOrdersUnderWay is how many orders a host may be carrying out, and how many it takes: one that never answers must
// not take up the controller's memory.
const MaxOrdersUnderWay = 16

// Plan is what was concluded.
type Plan struct {
	Findings []Finding
	Orders   []order.OfHost // of the hosts that have something to do, in the cluster's order
	Notes    []Note         // what could not be judged, and why nothing is done about it
	// HeldUsers are users whose actions on a host the safety limits held back, HeldHosts unknown users there. They are
	// not in Orders.
	HeldUsers []safety.Held
	HeldHosts []safety.Held
	// Ask are hosts to ask at once, sorted: something is due there by a look that is too old to act on.
	Ask           []snapshot.Hostname
	ExemptDevices map[snapshot.Hostname][]snapshot.DeviceIndex
	Uncounted     Uncounted
	// Offers are what commands that wait get by caps that hold as far as others wait, or could have.
	Offers []Offer
	Counts Counts // nil once the cycle is over: it holds all that the rules saw
}

// Uncounted is how many processes of how many people caps and idle don't see without non-env-processes: count.
type Uncounted struct{ Processes, People int }

// Counts is what the caps count, person by person, after what the plan does. It is not safe for concurrent use.
type Counts interface {
	// On are the caps that hold now for a person, as seen from a host that answered.
	On(host snapshot.Hostname, user snapshot.Username) []CapCount
	// Explain says of each of these what counts, and what would go first, a line each.
	Explain(host snapshot.Hostname, user snapshot.Username) []string
}

// Held reports whether the safety limits held anything back.
func (plan *Plan) Held() bool { return len(plan.HeldUsers)+len(plan.HeldHosts) > 0 }

// Note is something that could not be judged.
type Note struct {
	Host snapshot.Hostname `json:"host,omitempty"`
	Text string            `json:"text"`
}

// Offer is what a plan has for a command that waits for GPUs on a host.
type Offer struct {
	Host snapshot.Hostname
	ID   string
	// GPUs are free for it, or will be, and are kept for it alone then. Empty if nothing is taken for it.
	GPUs []snapshot.DeviceIndex
	// Possible is how many GPUs it could have there, if that is fewer than it waits for.
	Possible int
}

// CapCount is what a cap counts for a person, or for those who share it, and what it allows them.
type CapCount struct {
	CapExcess // Where and Why are empty
	// Here is what counts on the host, and Elsewhere on others, of which the oldest look was at Seen.
	Here, Elsewhere int64
	Seen            time.Time
	Hosts           []snapshot.Hostname // others with most of it, at most maxCountHosts
	// GPUs are those of the host that the cap is about, and HereGPUs those that count.
	GPUs, HereGPUs []snapshot.DeviceIndex
	Rule           Rule   // of a cap with a key of its own
	Model          string // as the policy writes it
	PerHost        bool
	While          bool // it holds only as far as others wait
}
