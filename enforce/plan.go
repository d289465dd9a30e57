package enforce

import (
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// FreshFor is the maximum age of a snapshot to act on; of a new one since it came, else since it was asked for.
const FreshFor = 2 * time.Second

// MaxOrdersUnderWay limits a host's running orders: one that never answers must not fill the memory.
const MaxOrdersUnderWay = 16

// Plan is the result of a judgement.
type Plan struct {
	Findings []Finding
	Orders   []order.OfHost // in the order of the cluster
	Notes    []Note         // what could not be judged, and why nothing is done about it
	// HeldUsers and HeldHosts are what the safety limits held back, against users and unknown users of hosts. Orders
	// don't have that.
	HeldUsers []safety.Held
	HeldHosts []safety.Held
	// Ask are hosts to ask at once, sorted: something is due there by an old snapshot.
	Ask           []snapshot.Hostname
	ExemptDevices map[snapshot.Hostname][]snapshot.DeviceIndex
	Uncounted     Uncounted
	// Offers are for commands that wait for GPUs, by caps with while.
	Offers []Offer
	Counts Counts // nil after the event, since it refers to all that the rules saw
}

// Uncounted are processes and people that caps and idle ignore without non-env-processes: count.
type Uncounted struct{ Processes, People int }

// Counts is what the caps count for each person after the plan. It is not safe for concurrent use.
type Counts interface {
	// On are the caps in force for a person, as seen from a host that answered.
	On(host snapshot.Hostname, user snapshot.Username) []CapCount
	// Explain returns a line for each of these: what counts, and what would go first.
	Explain(host snapshot.Hostname, user snapshot.Username) []string
}

// Held reports whether the safety limits held anything back.
func (plan *Plan) Held() bool { return len(plan.HeldUsers)+len(plan.HeldHosts) > 0 }

// Note is something that could not be judged.
type Note struct {
	Host snapshot.Hostname `json:"host,omitempty"`
	Text string            `json:"text"`
}

// Offer is the result for a command that waits for GPUs on a host.
type Offer struct {
	Host snapshot.Hostname
	ID   string
	// GPUs are or will be free, and are then kept for it alone. Empty if nothing is taken for it.
	GPUs []snapshot.DeviceIndex
	// Possible is how many GPUs it could have there, if fewer than it waits for.
	Possible int
}

// CapCount is a cap's count for a person, or for those who share it, and its limit.
type CapCount struct {
	CapExcess // Where and Why are empty
	// Here counts the host, and Elsewhere other hosts. Seen is the oldest look at these.
	Here, Elsewhere int64
	Seen            time.Time
	Hosts           []snapshot.Hostname // other hosts, those with most first; at most maxCountHosts
	// GPUs are those of the host that the cap covers, and HereGPUs the counted ones.
	GPUs, HereGPUs []snapshot.DeviceIndex
	Rule           Rule   // of a cap with its own key
	Model          string // as written in the policy
	PerHost        bool
	While          bool // in force only as far as others wait
}
