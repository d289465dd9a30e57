package enforce

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
)

// Policy says which rules apply, to whom, where and when. Its answers depend on the arguments alone, and several
// goroutines may ask it at once. See enforce/policy.
type Policy interface {
	// Settings is what applies to a query. Several answers may share it, so it is not to be changed.
	Settings(Query) *Settings
	// Exempt reports whether no rule may touch a subject, and why.
	Exempt(Subject) (reason string, exempt bool)
	// Caps are those of its list that hold at a moment, and those that then only count hours; all for the zero time. They
	// are in the order of the list, and the caller may change them.
	Caps(time.Time) []*Cap
	// Booking is what it lets a person reserve; nil for nothing. It isn't known while a membership isn't.
	Booking(snapshot.Username) (rule *snapshot.BookingRule, known bool)
	// ExemptIndices are the GPUs of a host that are exempt by an index, each once, without their UUIDs.
	ExemptIndices(snapshot.Hostname) []ExemptGPU
	// Account is the name under which it knows a user: that of all names of one account.
	Account(snapshot.Username) snapshot.Username
	// Names reports whether an override or a cap names an account: it counts for caps even if it is one of the system.
	Names(snapshot.Username) bool
	Fleet() Fleet
}

// Query asks what applies on a host, for a user, at a moment. It has no user for the rules of a host, and no host for a
// user's caps, which count on all hosts together.
type Query struct {
	Host   snapshot.Hostname
	Labels map[string]string // of the host
	User   snapshot.Username
	At     time.Time
}

// DefaultMaxAge is Settings.MaxAge where no policy says it.
const DefaultMaxAge = time.Minute

// Warn is how long a finding has to be there before it is acted on: a number of cycles and a time, the longer one.
type Warn struct {
	Cycles int
	For    time.Duration
	Spread int `json:"-"` // for somebody it is over so many 1,024ths of its last quarter earlier
}

// Fleet is what applies to the fleet as a whole.
type Fleet struct {
	// PauseCaps has the caps wait while a host did not answer. Otherwise its devices don't count: too few, never too
	// many.
	PauseCaps   bool
	Limits      safety.Limits
	Interval    time.Duration // between two looks at a host; 0 for a single cycle
	TellUsers   bool          // of what is wrong: on terminals, by mail or both
	Contact     string        // whom users ask about the policy; empty for none
	Unprotected []string      // names of daemons that may be ended although their host protects them
}

// Subject is what a policy may exempt: a process, an environment or a device on a host, or a user. What it doesn't
// have, or is unknown, is empty. User is set only if the question is about a user's caps.
type Subject struct {
	Host        snapshot.Hostname
	User        snapshot.Username
	Device      *snapshot.Device
	Environment *snapshot.Environment
	Process     *snapshot.Process
}

// Protects reports whether no rule applies to a process: its host would refuse to end it in every cycle.
func (f *Fleet) Protects(p *snapshot.Process) bool {
	return p.Protected != "" && !slices.Contains(f.Unprotected, p.Protected)
}
