// Package genvhost is genv on a simulated host, inside this process: an inprocess.Handler that answers `genv usage
// serve`, `snapshot` and `execute` from a snapshot in memory, and carries orders out on it. It starts no process, so
// that a thousand hosts fit on a small machine, and it fails on demand (see Behavior).
//
//	host := genvhost.New(&snapshot.Snapshot{Devices: …})
//	fleet, err := inprocess.Start(dir, 0, &inprocess.Server{Name: "a", Address: "127.7.0.1", Handler: host})
//	…
//	host.Change(func(s *snapshot.Snapshot) { s.Processes = append(s.Processes, p) })
//	host.Actions() // what it was asked to do
//
// It has no real processes: one that an order names is removed from the snapshot,
// if it is the one that was judged. For real processes see inprocess.Exec.
package genvhost

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
)

// Host is a simulated host. It is safe for concurrent use.
type Host struct {
	mu       sync.Mutex
	state    *snapshot.Snapshot
	encoded  []byte // of state; nil when it has changed since
	actions  []GivenItem
	behavior func(request string) Behavior
	old      bool
	answered []time.Time // if keeps
	keeps    bool
	run      string // see WithTokens
	events   bool
	changed  chan struct{} // closed when the state changes
	waits    int           // that were begun

	deviceAge time.Duration
}

// GivenItem is an item of an order that the host was given.
type GivenItem struct {
	At      time.Time
	Outcome order.Outcome
	Judged  snapshot.Process // for a termination
}

// New makes a host; the snapshot is the host's from then on.
func New(state *snapshot.Snapshot) *Host {
	return &Host{state: state, behavior: func(string) Behavior { return Behavior{} }, changed: make(chan struct{})}
}

// WithEvents makes it a host that reports when its snapshot changes.
func (h *Host) WithEvents() *Host {
	h.events = true
	return h
}

// WithTokens makes it a host of which root keeps tokens in a folder: see fence.Tokens.
func (h *Host) WithTokens(run string) *Host {
	h.run = run
	return h
}

// Waits is how many waits for events were begun.
func (h *Host) Waits() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.waits
}

// Old makes it a host with genv 1.4.3, which has no `usage serve`.
func (h *Host) Old() *Host {
	h.old = true
	return h
}

// Change changes the host's snapshot.
func (h *Host) Change(change func(*snapshot.Snapshot)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h.state)
	h.encoded = nil
	close(h.changed)
	h.changed = make(chan struct{})
}

// Actions are what the host was asked to do so far, in order.
func (h *Host) Actions() []GivenItem {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.actions)
}

// TakeActions is Actions, and the host forgets them: a long test must not need more memory than a short one.
func (h *Host) TakeActions() []GivenItem {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.actions
	h.actions = nil
	return taken
}

// Behave makes the host ask f how to behave at each request.
func (h *Host) Behave(f func(request string) Behavior) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.behavior = f
}

// DeviceAge is how old what is measured may be by the last request for a snapshot.
func (h *Host) DeviceAge() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deviceAge
}

// KeepTimes has the host note when it answers, for TakeAnswered.
func (h *Host) KeepTimes() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keeps = true
}

// TakeAnswered is when the host was asked for its snapshot, since KeepTimes or the last TakeAnswered.
func (h *Host) TakeAnswered() []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.answered
	h.answered = nil
	return taken
}

// conversation is the host as one conversation of `usage serve` sees it.
type conversation struct {
	host   *Host
	out    *damager
	wanted context.Context // ends when the controller hangs up
}

// Snapshot implements agent.Backend.
func (b *conversation) Snapshot(ctx context.Context, age local.Age) ([]byte, error) {
	b.host.mu.Lock()
	b.host.deviceAge = age.Measured
	b.host.mu.Unlock()
	return as(ctx, b, agent.RequestSnapshot, b.host.snapshot)
}

// Execute implements agent.Backend.
func (b *conversation) Execute(ctx context.Context, o order.Order, _ ending.Authority) (agent.Execution, error) {
	return as(ctx, b, agent.RequestExecute, func() (agent.Execution, error) {
		lines, outcomes := b.host.carryOut(o)
		return agent.Execution{Lines: lines, Outcomes: outcomes}, nil
	})
}

// Wait is for agent.Answers: a change that comes before the wait is missed.
func (b *conversation) Wait(ctx context.Context) error {
	b.host.mu.Lock()
	b.host.waits++
	changed := b.host.changed
	b.host.mu.Unlock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Notify implements agent.Backend: users of this host have no terminals.
func (b *conversation) Notify(messages []agent.Message) ([]agent.Receipt, error) {
	b.host.mu.Lock()
	behavior := b.host.behavior(agent.RequestNotify)
	b.host.mu.Unlock()
	return make([]agent.Receipt, len(messages)), behavior.pause(b.wanted, b.wanted)
}

// as does what a request asks for, and behaves as the host does now.
func as[T any](ctx context.Context, b *conversation, request string, do func() (T, error)) (T, error) {
	b.host.mu.Lock()
	choose := b.host.behavior
	b.host.mu.Unlock()
	behavior := choose(request)
	if err := behavior.pause(ctx, b.wanted); err != nil {
		var none T
		return none, err
	}
	value, err := do()
	if behavior.Damage != Intact {
		b.out.next.Store(int32(behavior.Damage))
	}
	return value, err
}

// snapshot is the host's snapshot, encoded.
func (h *Host) snapshot() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keeps {
		h.answered = append(h.answered, time.Now())
	}
	var err error
	if h.encoded == nil {
		h.encoded, err = snapshot.EncodeNative(h.state)
	}
	return h.encoded, err
}

// carryOut carries out an order on the snapshot.
func (h *Host) carryOut(given order.Order) (lines []string, outcomes []order.Outcome) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.encoded = nil
	note := func(o order.Outcome, judged snapshot.Process) {
		outcomes = append(outcomes, o)
		h.actions = append(h.actions, GivenItem{At: time.Now(), Outcome: o, Judged: judged})
	}
	lines = []string{}
	for _, d := range given.Detach {
		o := order.Outcome{Device: d.Device, EID: d.Environment.EID, Status: order.StatusNotAttached}
		if h.detach(d) {
			o.Status = order.StatusDetached
			lines = append(lines, d.String())
		}
		note(o, snapshot.Process{})
	}
	for _, t := range given.Terminate {
		o := order.Outcome{PID: t.Process.PID, EID: t.Process.EID, Status: h.terminate(&t.Process)}
		if o.Status == order.StatusTerminated {
			lines = append(lines, t.String())
		}
		note(o, t.Process)
	}
	return lines, outcomes
}

func (h *Host) detach(d order.Detachment) bool {
	device := h.state.Device(d.Device)
	if device == nil || device.Attachment(d.Environment.EID) == nil {
		return false
	}
	device.Attachments = slices.DeleteFunc(device.Attachments, func(a snapshot.Attachment) bool { return a.EID == d.Environment.EID })
	return true
}

func (h *Host) terminate(judged *snapshot.Process) order.OutcomeStatus {
	i := slices.IndexFunc(h.state.Processes, func(p snapshot.Process) bool { return p.PID == judged.PID })
	if i < 0 {
		return order.StatusGone
	}
	if judged.Start != 0 && h.state.Processes[i].Start != judged.Start {
		return order.StatusChanged
	}
	h.state.Processes = slices.Delete(h.state.Processes, i, i+1)
	return order.StatusTerminated
}
