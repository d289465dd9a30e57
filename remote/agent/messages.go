package agent

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// The requests of `genv usage serve`, and their bodies as JSON. docs/protocol.md describes them.
const (
	RequestSnapshot = "snapshot"
	RequestExecute  = "execute"
	RequestPing     = "ping"
	// RequestNotify shows messages to users on their terminals, as write(1) does.
	// Its name on the wire is older than its name here.
	RequestNotify = "tell"
	// RequestWait waits until something may have changed on the host since its last snapshot.
	RequestWait = "wait"
	// RequestGiveBack gives the lease of the host back: the controller has ended.
	RequestGiveBack = "release"
	// RequestDevices and RequestEnvironments are all that a host answers to a login
	// without root, besides RequestPing: what every login may see there. The answers are
	// the documents of `genv usage snapshot --type devices` and `--type envs`.
	RequestDevices      = "devices"
	RequestEnvironments = "envs"
)

// CapabilityFence is among the capabilities of a host that refuses a controller that was replaced.
const CapabilityFence = "fence"

// CapabilityEvents is among the capabilities of a host that answers a RequestWait.
const CapabilityEvents = "events"

// CapabilityOver is among the capabilities of a host that knows Message.Over.
const CapabilityOver = "over"

// SnapshotRequest asks for a snapshot, unless it is still the one of Revision.
type SnapshotRequest struct {
	Revision uint64 `json:"revision"` // of the snapshot at hand; 0 for none
	// AgeMS is how old the utilization, temperature and power of the devices may be, in
	// milliseconds; 0 leaves that to the host. A host with an older genv ignores it.
	AgeMS int64 `json:"age_ms,omitempty"`
	// WithinMS is how long the controller waits for the answer, and MaxAgeMS how old an answer of
	// the driver may be where none comes in that time; in milliseconds. Without them the host waits
	// as long as it likes, and uses no earlier answer.
	WithinMS int64 `json:"within_ms,omitempty"`
	MaxAgeMS int64 `json:"max_age_ms,omitempty"`
	// Types asks for the types of processes. Only an older genv doesn't send them unless it is asked.
	Types bool `json:"types,omitempty"`
	// Allowance is what the policy allows there, from a controller that enforces it. A host with
	// an older genv ignores it.
	Allowance *service.Allowance `json:"allowance,omitempty"`
	// Codes asks for codes in refusals, from now on. An older genv ignores it.
	Codes bool `json:"codes,omitempty"`
	// Lease asks for a lease; nil from a controller that asks for none, or only looks. Only hosts with CapabilityFence
	// get it. Earlier versions send it in the first request and when it has changed.
	Lease *fence.LeaseRequest `json:"claim,omitempty"`
}

// bounded is a number of milliseconds as a duration.
func bounded(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), time.Hour.Milliseconds())) * time.Millisecond
}

// SnapshotAnswer is the snapshot, or, if nothing changed, the revision of the request and no snapshot.
type SnapshotAnswer struct {
	Revision uint64          `json:"revision"`
	Snapshot json.RawMessage `json:"snapshot,omitempty"` // snapshot.EncodeNative
	// SinceBootMS is how long ago the host was booted, in milliseconds, with a snapshot; 0 if
	// that is unknown, as to an older genv.
	SinceBootMS int64 `json:"since_boot_ms,omitempty"`
	// ClockMS is what the host's clock says, in milliseconds since 1970; 0 from an older genv.
	ClockMS int64 `json:"clock_ms,omitempty"`
	// Tokens are those of other conversations with this machine and state folder, the last minutes'.
	// Missing if the host can't keep them, or has an older genv.
	Tokens []string `json:"tokens,omitzero"`
}

// ExecuteRequest has an order carried out.
type ExecuteRequest struct {
	Order   json.RawMessage `json:"report"` // order.EncodeNative
	GraceMS int64           `json:"grace_ms"`
	order.Options
	ID string `json:"id,omitempty"` // of the order in the controller's log
	order.AllReasons
	// Lease is that of the controller: see SnapshotRequest.
	Lease *fence.LeaseRequest `json:"claim,omitempty"`
}

// Execution is the answer to an ExecuteRequest: what the host reports to have done.
type Execution struct {
	Lines    []string        `json:"lines"`              // as genv 1.4.3 prints them
	Outcomes []order.Outcome `json:"outcomes"`           // one for each item; nil from genv 1.4.3
	Warnings []string        `json:"warnings,omitempty"` // problems that the host noticed
}

// NotifyRequest has messages shown to users.
type NotifyRequest struct {
	Messages []Message `json:"messages"`
}

// Message is for the terminals of one user.
type Message struct {
	UID  snapshot.UID `json:"uid"`
	Text string       `json:"text"` // lines of plain text
	// IDs are the findings that it is about, for the host's log.
	IDs []string `json:"ids,omitempty"`
	// DueMS is in how many milliseconds it is due what the message warns of; 0 if it warns of nothing, or that isn't
	// known.
	DueMS int64 `json:"due_ms,omitempty"`
	// Over says that warnings of IDs are over. That is only recorded, for `genv why`.
	Over bool `json:"over,omitempty"`
}

// NotifyAnswer says on how many terminals each message was shown, in the order of
// the request. A user who is not logged in, or takes no messages, has none.
type NotifyAnswer struct {
	Terminals []int `json:"terminals"`
	// Kept says which messages are kept for the next login of their user; missing from an older genv.
	Kept []bool `json:"kept,omitempty"`
}

// Receipt is what became of a message.
type Receipt struct {
	Terminals int
	Kept      bool // for the next login of the user
}

// shown is the answer message by message.
func (a NotifyAnswer) shown() []Receipt {
	list := make([]Receipt, len(a.Terminals))
	for i, n := range a.Terminals {
		list[i] = Receipt{Terminals: n, Kept: i < len(a.Kept) && a.Kept[i]}
	}
	return list
}

func answerOf(list []Receipt) NotifyAnswer {
	a := NotifyAnswer{Terminals: make([]int, len(list)), Kept: make([]bool, len(list))}
	for i, s := range list {
		a.Terminals[i], a.Kept[i] = s.Terminals, s.Kept
	}
	return a
}

// ErrCannotNotify says that the genv on the host cannot show messages to users.
var ErrCannotNotify = errors.New("genv on this host cannot show messages to users")
