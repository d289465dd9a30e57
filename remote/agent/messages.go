package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// The requests of `genv usage serve`, and their bodies as JSON. docs/protocol.md describes them.
const (
	RequestSnapshot = "snapshot"
	RequestExecute  = "execute"
	RequestPing     = "ping"
	RequestNotify   = "tell"    // show messages on users' terminals
	RequestWait     = "wait"    // until something may have changed since the last snapshot
	RequestGiveBack = "release" // give back the lease: the controller has ended
	RequestGuard    = "guard"   // also a capability; the answer says if the host's kernel has no guard
	RequestActing   = "acting"  // also a capability: which controller may act, with a trial of what acting needs
	// These need no root: the documents of `genv usage snapshot --type devices` and `--type envs`.
	RequestDevices      = "devices"
	RequestEnvironments = "envs"
)

// The capabilities of some hosts.
const (
	CapabilityFence  = "fence"  // refuses a controller that was replaced
	CapabilityEvents = "events" // answers RequestWait
	CapabilityOver   = "over"   // knows Message.Over
)

// SnapshotRequest asks for a snapshot unless it is that of Revision.
type SnapshotRequest struct {
	Revision uint64 `json:"revision"`         // of the last snapshot; 0 for none
	AgeMS    int64  `json:"age_ms,omitempty"` // how old measurements of devices may be; 0 leaves that to the host
	// WithinMS is how long the controller waits. MaxAgeMS is how old an answer of the driver may be if none comes in
	// that time. Without them the host waits for the driver, and uses no earlier answer.
	WithinMS int64 `json:"within_ms,omitempty"`
	MaxAgeMS int64 `json:"max_age_ms,omitempty"`
	Types    bool  `json:"types,omitempty"` // asks an older genv for the types of processes
	// Allowance is what the policy allows there. It is sent when it is new or renewed.
	Allowance *service.Allowance `json:"allowance,omitempty"`
	Codes     bool               `json:"codes,omitempty"` // asks for codes in refusals, from now on
	// Lease is for hosts with CapabilityFence. Earlier versions send it only in the first request and when it changes.
	Lease *fence.LeaseRequest `json:"claim,omitempty"`
}

func bounded(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), time.Hour.Milliseconds())) * time.Millisecond
}

// SnapshotAnswer has the snapshot or, if nothing changed, only the revision of the request.
type SnapshotAnswer struct {
	Revision uint64          `json:"revision"`
	Snapshot json.RawMessage `json:"snapshot,omitempty"` // snapshot.EncodeNative
	// SinceBootMS is the time since the host's boot; 0 if it is unknown, or without a snapshot.
	SinceBootMS int64 `json:"since_boot_ms,omitempty"`
	ClockMS     int64 `json:"clock_ms,omitempty"` // the host's clock, since 1970; 0 from an older genv
	// Tokens are from other recent conversations with this machine and state folder, if the host keeps them.
	Tokens []string `json:"tokens,omitzero"`
}

// ExecuteRequest sends an order.
type ExecuteRequest struct {
	Order json.RawMessage `json:"report"` // order.EncodeNative
	order.Options
	ID string `json:"id,omitempty"` // of the order in the controller's log
	order.AllReasons
	Lease *fence.LeaseRequest `json:"claim,omitempty"` // see SnapshotRequest
}

// Execution is a host's report on an order.
type Execution struct {
	Lines    []string        `json:"lines"`              // as genv 1.4.3 prints them
	Outcomes []order.Outcome `json:"outcomes"`           // one for each item; nil from genv 1.4.3
	Warnings []string        `json:"warnings,omitempty"` // problems that the host noticed
}

// NotifyRequest has messages for users.
type NotifyRequest struct {
	Messages []Message `json:"messages"`
}

// Message is for the terminals of one user.
type Message struct {
	UID  snapshot.UID `json:"uid"`
	Text string       `json:"text"`          // lines of plain text
	IDs  []string     `json:"ids,omitempty"` // of its findings, for the host's log
	// DueMS is the time until the action that the message warns of; 0 if unknown or for no warning.
	DueMS int64 `json:"due_ms,omitempty"`
	Over  bool  `json:"over,omitempty"` // the warnings of IDs are over; it is only recorded, for `genv why`
}

// NotifyAnswer has the number of terminals that showed each message, in the order of the request.
type NotifyAnswer struct {
	Terminals []int  `json:"terminals"`
	Kept      []bool `json:"kept,omitempty"` // for the next login; missing from an older genv
}

// Receipt says who got a message.
type Receipt struct {
	Terminals int
	Kept      bool // for the next login of the user
}

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

// ErrCannotGuard says that the genv on the host knows no guard: enforce by polling.
var ErrCannotGuard = errors.New("genv on this host knows no kernel guard")

// GuardPrefix begins the IDs of orders from controllers. Other orders were given on the host.
const GuardPrefix = "controller "

// GuardRequest gives or renews an order.
type GuardRequest struct {
	ID    string      `json:"id"`    // GuardPrefix and the controller: a further order with this ID renews the first
	Order guard.Order `json:"order"` // with mode off it ends only the order of this controller
}

// GuardAnswer has the state of the guard.
type GuardAnswer struct {
	State GuardState `json:"state"`
}

// GuardState is what a host's guard does. A new order may take a second to show.
type GuardState struct {
	Mode   guard.Mode `json:"mode"` // of the kernel now
	LeftMS int64      `json:"left_ms,omitempty"`
	// Reason is why the mode differs from the order; empty if it doesn't, or if the order is too new to tell.
	Reason   string   `json:"reason,omitempty"`
	Problems []string `json:"problems,omitempty"` // for an administrator, a line each
	Denied   uint64   `json:"denied,omitempty"`   // opens denied in the last hour, or in mode watch those to be denied
}

const (
	maxText     = 1024 // bytes
	maxProblems = 16
)

// Bounded limits an answer to plausible values.
func (a GuardAnswer) Bounded() GuardAnswer {
	line := func(said string) string { return text.Cut(text.OneLine(text.Cut(said, maxText)), maxText) }
	s := &a.State
	if !s.Mode.Valid() {
		s.Mode = guard.Off
	}
	s.Reason = line(s.Reason)
	s.Problems = slices.Clone(s.Problems[:min(len(s.Problems), maxProblems)])
	for i, p := range s.Problems {
		s.Problems[i] = line(p)
	}
	return a
}

func (a *Answers) guard(ctx context.Context, request GuardRequest) (GuardAnswer, error) {
	if a.Guard == nil {
		return GuardAnswer{}, ErrCannotGuard
	}
	if err := a.admit(a.lease.Load()); err != nil {
		return GuardAnswer{}, err
	}
	return a.Guard(ctx, request)
}

// Guard gives or renews the order for a host's guard, or returns ErrCannotGuard. It doesn't log in.
func (p *Pool) Guard(ctx context.Context, host remote.Host, order GuardRequest) (GuardAnswer, error) {
	return onConn(p, host, func(c *Conn) (answer GuardAnswer, err error) {
		t, connected := c.streamWith(RequestGuard)
		switch {
		case !connected:
			return answer, remote.Errorf(remote.Unreachable, "%s was lost before the guard was asked", host.Name)
		case t == nil:
			return answer, ErrCannotGuard
		}
		answer, err = request[GuardAnswer](ctx, c, t, p.Timeout, RequestGuard, order)
		return answer.Bounded(), err
	})
}

// WaitRequest waits for an event.
type WaitRequest struct {
	MaxMS int64 `json:"max_ms"` // the answer comes by then
}

// WaitAnswer ends a wait.
type WaitAnswer struct {
	Woke bool `json:"woke"` // false after MaxMS, or if another wait began
}

// maxWait bounds a wait. A host that doesn't answer by then is unreachable.
const maxWait = 5 * time.Minute

func (a *Answers) wait(ctx context.Context, request WaitRequest) (WaitAnswer, error) {
	if a.Event == nil {
		return WaitAnswer{}, fmt.Errorf("this host has no request %q", RequestWait)
	}
	most := min(max(request.MaxMS, 0), maxWait.Milliseconds())
	limited, cancel := context.WithTimeout(ctx, time.Duration(most)*time.Millisecond)
	defer cancel()
	err := a.Event(limited)
	if limited.Err() != nil && err != nil {
		return WaitAnswer{}, nil
	}
	return WaitAnswer{Woke: err == nil}, err
}

// ErrNoEvents says that a host can't report events: ask it at intervals.
var ErrNoEvents = errors.New("the host reports no events")

var errNotAsked = errors.New("the host has not been asked for a snapshot on this connection")

// Await waits, for some minutes at most, until something may have changed on a host since its last snapshot. Then it
// calls done in a goroutine; woke is false if nothing changed. It doesn't log in: without a connection it fails.
func (p *Pool) Await(ctx context.Context, host remote.Host, done func(woke bool, err error)) {
	leave, err := p.beginCall()
	if err != nil {
		go done(false, err)
		return
	}
	go func() {
		woke, err := p.conn(host).awaitEvent(ctx)
		leave()
		done(woke, err)
	}()
}

func (c *Conn) awaitEvent(ctx context.Context) (woke bool, err error) {
	current, asked := c.current()
	t, ok := current.(*streamTransport)
	switch {
	case !asked || current == nil:
		return false, errNotAsked
	case !ok || !t.stream.Greeting.Can(CapabilityEvents):
		return false, ErrNoEvents
	}
	answer, err := request[WaitAnswer](ctx, c, t, maxWait+c.pool.Timeout, RequestWait,
		WaitRequest{MaxMS: maxWait.Milliseconds()})
	return answer.Woke, err
}
