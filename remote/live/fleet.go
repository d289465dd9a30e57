package live

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// FleetState is the state of a fleet. All viewers share it, and it must not be changed.
type FleetState struct {
	Schema    string                   `json:"schema"`   // genv.live.fleet/1
	Revision  uint64                   `json:"revision"` // grows with each change, and begins again with each run
	Run       string                   `json:"run"`      // of the controller
	Cycle     int                      `json:"cycle"`    // 0 before the first
	Time      time.Time                `json:"time,omitzero"`
	Took      float64                  `json:"took_seconds,omitempty"` // missing while it lasts
	Interval  float64                  `json:"interval_seconds"`       // from start to start
	Enforcing bool                     `json:"enforcing"`              // false for `genv remote watch`
	DryRun    bool                     `json:"dry_run"`
	Election  *election.StatusDocument `json:"election,omitempty"` // who leads, with --leader

	Hosts      []FleetHost            `json:"hosts"` // in the administrator's order
	Users      []FleetUser            `json:"users"` // in alphabetical order
	Findings   []Finding              `json:"findings"`
	Notes      []enforce.Note         `json:"notes"`
	Failed     []remote.Failure       `json:"failed"`
	Duplicates []controller.Duplicate `json:"duplicates"` // left out
	HeldUsers  []safety.Held          `json:"held_users"` // against whom safety limits held actions back
	HeldHosts  []safety.Held          `json:"held_hosts"`
	Hold       *operator.OnHold       `json:"hold,omitempty"`       // an operator's, if there is one
	Exemptions policy.ExemptionList   `json:"exemptions"`           // operators', the oldest first
	Unrecorded string                 `json:"unrecorded,omitempty"` // why the record can't be written
}

// Exempt returns an exemption of operators for a GPU or one of its users, and whether it has begun: the first one that
// has, or else the first. It is nil for none.
func (f *FleetState) Exempt(host snapshot.Hostname, gpu *gpus.GPU) (found *policy.Exemption, begun bool) {
	if len(f.Exemptions) == 0 {
		return nil, false
	}
	users := gpu.Users()
	for i := range f.Exemptions {
		e := &f.Exemptions[i]
		switch {
		case e.Host != "" && e.Host != host:
		case e.Device != nil && !e.IsOf(gpu.Index, gpu.UUID):
		case e.User != "" && !slices.Contains(users, e.User):
		case e.Begun(f.Time):
			return e, true
		case found == nil:
			found = e
		}
	}
	return found, false
}

// FleetHost is a host of the fleet.
type FleetHost struct {
	Name   snapshot.Hostname `json:"host"`
	Labels map[string]string `json:"labels,omitempty"`
	Via    agent.Via         `json:"via,omitempty"`
	Seen   time.Time         `json:"seen,omitzero"` // when the cycle of its last answer began; missing for none
	// Failure is why the host didn't answer in the last cycle. Its GPUs are unknown then.
	Failure  *remote.Failure `json:"failure,omitempty"`
	GPUs     []gpus.GPU      `json:"gpus"`
	Warnings []string        `json:"warnings,omitempty"` // the host's own
	Guard    HostGuard       `json:"guard,omitzero"`     // the kernel's
	Service  *bool           `json:"service,omitempty"`  // root owns the state; missing if unknown
	// Waiting is how many wait for GPUs there; missing where there is no queue.
	Waiting *Waiting `json:"waiting,omitempty"`
	// Unable is why nothing can be ended there, or nothing of an order was done.
	Unable string `json:"unable,omitempty"`
	// Reservations are those that have not ended; missing if unknown, or if there are none.
	Reservations []Reservation `json:"reservations,omitempty"`
	Reserved     *int          `json:"reserved,omitempty"` // how many GPUs are reserved now; missing if unknown
	Changed      uint64        `json:"changed"`            // the revision of its last change

	snapshot *snapshot.Snapshot // of Seen
	users    []FleetUser
}

// Waiting is how many commands wait for GPUs of a host.
type Waiting struct {
	Commands int             `json:"commands"`
	GPUs     int             `json:"gpus"`            // that they wait for
	Longest  int64           `json:"longest_seconds"` // how long the first of them has been waiting, to the minute
	People   []WaitingPerson `json:"people"`          // a row for each command, the longest wait first
}

// WaitingPerson is who waits for how many GPUs.
type WaitingPerson struct {
	User    snapshot.Username `json:"user,omitempty"`
	GPUs    int               `json:"gpus"`
	Seconds int64             `json:"seconds"` // to the minute
}

func waitingIn(s *snapshot.Snapshot) *Waiting {
	if s.Waits == nil {
		return nil
	}
	w := &Waiting{Commands: len(s.Waits), People: make([]WaitingPerson, len(s.Waits))}
	for i := range s.Waits {
		wait, minutes := &s.Waits[i], s.Waits[i].Seconds/60*60
		w.GPUs += wait.GPUs
		w.Longest = max(w.Longest, minutes)
		w.People[i] = WaitingPerson{gpus.UserName(wait.Username, &wait.UID), wait.GPUs, minutes}
	}
	slices.SortStableFunc(w.People, func(a, b WaitingPerson) int { return cmp.Compare(b.Seconds, a.Seconds) })
	return w
}

// RootOwnsState reports whether the host says that root owns its state files.
func (h *FleetHost) RootOwnsState() bool { return h.Service != nil && *h.Service }

// ServiceState is RootOwnsState in a table: on, off, or ? if unknown.
func (h *FleetHost) ServiceState() string {
	switch {
	case h.Service == nil:
		return "?"
	case *h.Service:
		return "on"
	}
	return "off"
}

// Users returns the users of the host's GPUs, attached or not, each once, in alphabetical order.
func (h *FleetHost) Users() []snapshot.Username {
	var users []snapshot.Username
	for i := range h.GPUs {
		users = append(users, h.GPUs[i].Users()...)
	}
	slices.Sort(users)
	return slices.Compact(users)
}

// FleetUser is what a user has and uses on all hosts that answer.
type FleetUser struct {
	Name     snapshot.Username `json:"user"`
	Hosts    int               `json:"hosts"`    // with GPUs of the user
	Attached int               `json:"attached"` // GPUs
	// Idle are attached ones that the user's processes don't use, or that compute nothing.
	Idle     int   `json:"idle"`
	Used     int   `json:"used"`          // GPUs, attached or not
	Memory   int64 `json:"memory_bytes"`  // what the user's processes use, as far as known
	Cap      *int  `json:"cap,omitempty"` // how many GPUs the user may have now; missing for any number
	Findings int   `json:"findings"`
}

// Finding is a finding with its line for people and what is done about it.
type Finding struct {
	enforce.Finding
	Line     string           `json:"line"` // for people
	Decision enforce.Decision `json:"decision"`
}

// Reservation is a reservation of GPUs of a host that hasn't ended.
type Reservation struct {
	ID     string            `json:"id"`
	User   snapshot.Username `json:"user,omitempty"`
	GPUs   int               `json:"gpus"`
	From   time.Time         `json:"from"`
	Until  time.Time         `json:"until"`
	Reason string            `json:"reason,omitempty"`
}

// ReservationsOf returns a snapshot's reservations by start, and how many GPUs are reserved at a time; nil if unknown.
func ReservationsOf(s *snapshot.Snapshot, at time.Time) (list []Reservation, reserved *int) {
	if s.Reservations == nil {
		return nil, nil
	}
	clock, _ := s.Clock(at)
	_, now := snapshot.RunningAt(s.Reservations, clock)
	for i := range s.Reservations {
		if b := &s.Reservations[i]; b.Holds(clock) {
			list = append(list, Reservation{b.ID, gpus.UserName(b.Username, &b.UID), b.GPUs, b.From, b.Until, b.Reason})
		}
	}
	slices.SortFunc(list, func(a, b Reservation) int { return cmp.Or(a.From.Compare(b.From), cmp.Compare(a.ID, b.ID)) })
	return list, &now
}

// String is for people, in this machine's time zone.
func (r *Reservation) String() string {
	s := fmt.Sprintf("%s reserved by %s from %s to %s", text.Plural(r.GPUs, "GPU"), gpus.ShownUser(r.User),
		snapshot.When(r.From.Local()), snapshot.When(r.Until.Local()))
	if r.Reason != "" {
		s += ": " + text.Quoted(r.Reason, maxReason)
	}
	return s
}

const maxReason = 60 // characters
