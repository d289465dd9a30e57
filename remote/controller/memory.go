package controller

import (
	"errors"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// MaxMemoryAge is how old a memory may be to be continued: what happened meanwhile is not
// known, so "without a break" would be a guess.
const MaxMemoryAge = time.Hour

// FleetMemory is what a controller keeps from cycle to cycle, and on disk from run to run.
// It is replaced after a cycle that counts: one that was judged, and recorded if there
// is a record. Otherwise it stays as it was, as if there had been no such cycle.
type FleetMemory struct {
	Rules    enforce.Memory       `json:"rules"`
	Machines Machines             `json:"machines"`
	Messages Budget[snapshot.UID] `json:"messages"`
	Mail     mail.Backlog         `json:"mail,omitzero"`
	Guards   GuardMemory          `json:"guards,omitempty"`
	// Operator is what operators asked for that lasts. It has a file of its own, since
	// it doesn't age: see statedir.
	Operator operator.State `json:"-"`
}

// learnOfDeliveries marks warnings that may not have arrived, so that they are sent
// again, and does not count messages that were shown on no terminal. Messages about
// actions are not sent again: the action has taken place.
func (m *FleetMemory) learnOfDeliveries(deliveries []Delivery) {
	var lost []string
	type recipient struct {
		host snapshot.Hostname
		uid  snapshot.UID
	}
	uncounted := make(map[recipient]bool)
	for _, d := range deliveries {
		if errors.Is(d.Err, errSuppressed) {
			continue
		}
		if d.Err != nil && !errors.Is(d.Err, agent.ErrCannotNotify) && !errors.Is(d.Err, agent.ErrRefused) {
			lost = append(lost, d.ID)
		}
		if to := (recipient{d.Host, d.UID}); d.Terminals == 0 && !uncounted[to] {
			uncounted[to] = true
			m.Messages.Refund(to.host, to.uid, 1)
		}
	}
	m.Rules = m.Rules.WarnAgain(lost)
}

// stateWriter writes the state of a loop in the background, so that the loop does not wait for the
// disk. Each state is the whole one, so the newest replaces those that still wait: however slow the
// disk is, something is safe after two writes at most. The zero stateWriter is ready for use. It is
// safe for concurrent use.
type stateWriter struct {
	mu      sync.Mutex
	busy    bool
	waiting *pendingState // the next one; nil for none
	work    sync.WaitGroup
}

// pendingState is a state that is to be written.
type pendingState struct {
	write func()
	safe  chan struct{}
}

// Write has a state written, and returns a channel that is closed when that, or a newer one,
// has been written. It doesn't wait.
func (w *stateWriter) Write(write func()) (safe <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = &pendingState{safe: make(chan struct{})}
	}
	w.waiting.write = write
	if !w.busy {
		w.busy = true
		w.work.Go(w.run)
	}
	return w.waiting.safe
}

// After does something in the background once safe, which Write returned, is closed.
func (w *stateWriter) After(safe <-chan struct{}, do func()) {
	w.work.Go(func() { <-safe; do() })
}

// Wait waits until all is written, and what comes After that is done. Neither Write nor After
// may be called meanwhile. A nil stateWriter has nothing to write.
func (w *stateWriter) Wait() {
	if w != nil {
		w.work.Wait()
	}
}

// run writes until nothing waits.
func (w *stateWriter) run() {
	for s := w.next(); s != nil; s = w.next() {
		s.write()
		close(s.safe)
	}
}

func (w *stateWriter) next() *pendingState {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.waiting
	w.waiting, w.busy = nil, s != nil
	return s
}
