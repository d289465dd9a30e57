package agent

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// Via is how a host is spoken with. The texts appear in JSON.
type Via string

// The ways, the best first. Which one it is, is found out when a conversation
// begins, and kept until it breaks.
const (
	ViaStream   Via = "stream"    // genv usage serve: a message a question
	ViaCommands Via = "commands"  // genv usage snapshot and execute: genv 1.4.3
	ViaReadOnly Via = "read-only" // no genv there: nvidia-smi and /proc
)

// Pool is the Link that keeps a conversation with every host, and falls back
// by itself to what the host understands. Its fields are set before its first
// use; then it is safe for concurrent use. Close ends it.
type Pool struct {
	Start  Start
	Runner remote.Runner // for hosts without streams
	// Timeout is the deadline of a question, the greeting before the first one
	// included. A report has the time that its processes get to end on top.
	Timeout time.Duration
	// Fanout is how many hosts at a time are logged in to or given commands; 0
	// is no bound. A question in a conversation that stands waits for nobody.
	Fanout int
	// Forget, if set, ends the connection to a host whose conversation broke.
	Forget func(remote.Host)
	Log    zerolog.Logger

	mu      sync.Mutex
	talks   map[string]*talk
	slots   chan struct{}
	closing sync.WaitGroup // sessions that are being closed
}

// talk finds or begins what is known of a host. It is under its mutex when it
// is used, so that one question is under way at a time.
func (s *Pool) talk(host remote.Host) *talk {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.talks == nil {
		s.talks = make(map[string]*talk)
	}
	t := s.talks[host.Name]
	if t == nil {
		t = &talk{pool: s, host: host}
		s.talks[host.Name] = t
	}
	return t
}

// Via says how a host is spoken with; empty while that is not known.
func (s *Pool) Via(host remote.Host) Via {
	t := s.talk(host)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.line == nil {
		return ""
	}
	return t.line.via
}

// Keep goes on with the hosts that are still to be spoken with in the same
// way, and ends what there is with all others, which it returns. How hosts
// without streams are spoken with is found out again.
func (s *Pool) Keep(hosts []remote.Host) (over []remote.Host) {
	kept := make(map[string]remote.Host, len(hosts))
	for _, h := range hosts {
		kept[h.Name] = h
	}
	s.mu.Lock()
	var ended, rest []*talk
	for name, t := range s.talks {
		if h, ok := kept[name]; !ok || !sameWay(h, t.host) {
			ended = append(ended, t)
			delete(s.talks, name)
		} else {
			rest = append(rest, t)
		}
	}
	s.mu.Unlock()
	for _, t := range ended {
		t.locked(t.end)
		over = append(over, t.host)
	}
	for _, t := range rest {
		t.locked(t.reconsider)
	}
	return over
}

// sameWay says whether two hosts are reached and commanded alike.
func sameWay(a, b remote.Host) bool {
	return a.Name == b.Name && a.Address == b.Address && a.Port == b.Port && a.User == b.User &&
		a.GenvPath == b.GenvPath && a.NoSudo == b.NoSudo
}

// Close ends all conversations and waits for their sessions' ends.
func (s *Pool) Close() {
	s.Keep(nil)
	s.closing.Wait()
}

// Snapshot implements Link.
func (s *Pool) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	t := s.talk(host)
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.line != nil && t.line.via == ViaStream
	taken, err := t.snapshot(ctx, laterPatience)
	if err != nil && kept && errors.Is(err, errCut) && ctx.Err() == nil {
		// The conversation was from an earlier cycle and had ended since. A
		// question for a snapshot changes nothing, so it may be put again.
		taken, err = t.snapshot(ctx, min(firstPatience, s.Timeout/2))
	}
	if err != nil && remote.ClassOf(err) == remote.OutcomeUnknown {
		err = &remote.Error{Class: remote.Unreachable, Err: err} // nothing was to be done, so nothing is unknown
	}
	return taken, err
}

// Execute implements Link.
func (s *Pool) Execute(ctx context.Context, host remote.Host, report enforce.Report) (Execution, error) {
	t := s.talk(host)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.carryOut(ctx, report)
}

// What a host needs beside the Timeout to carry out a report: the time that
// processes get when the report leaves it to the host, and what the kernel and
// the driver get after SIGKILL.
const (
	ownGrace = 10 * time.Second
	killWait = 10 * time.Second
)

// timeFor is the deadline of a report.
func (s *Pool) timeFor(report enforce.Report) time.Duration {
	limit := s.Timeout + cmp.Or(report.Grace, ownGrace)
	if report.Kill {
		limit += killWait
	}
	return limit
}

// enter waits until few enough hosts are logged in to.
func (s *Pool) enter(ctx context.Context) (leave func(), err error) {
	if s.Fanout <= 0 {
		return func() {}, nil
	}
	s.mu.Lock()
	if s.slots == nil {
		s.slots = make(chan struct{}, s.Fanout)
	}
	slots := s.slots
	s.mu.Unlock()
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	case <-ctx.Done():
		return nil, remote.Errorf(remote.Cancelled, "stopped before it was begun: %w", context.Cause(ctx))
	}
}
