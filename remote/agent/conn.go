package agent

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// talk is what is going on with one host.
type talk struct {
	pool *Pool
	host remote.Host

	mu      sync.Mutex
	line    *line    // nil while there is none
	attempt *attempt // to have a line; nil for none
	why     error    // there is none; nil when it was never tried
	losses  int      // since it last answered
}

// errCut is wrapped when a conversation had ended at the other end.
var errCut = errors.New("the conversation was cut off")

// How long a host that was lost is waited for at most in the cycle that finds it
// lost, and in later ones. The attempt to reach it continues in the background of the
// cycles, so that a dead host does not delay the living ones.
const (
	firstPatience = time.Second
	laterPatience = 20 * time.Millisecond
)

func (t *talk) locked(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

// hangUp ends the conversation, if there is one. What was wrong with the host
// before is forgotten.
func (t *talk) hangUp() {
	if t.line != nil {
		t.pool.closing.Go(t.line.close)
	}
	t.line, t.why, t.losses = nil, nil, 0
}

// lose ends the conversation because of why, and the connection with it, unless
// the host only hung up: then there is nothing wrong with the connection.
func (t *talk) lose(why error) {
	if errors.Is(why, errCut) {
		t.pool.closing.Go(t.line.close)
	} else {
		t.pool.drop(t.line, t.host)
	}
	t.line, t.why = nil, why
	t.losses++
}

// end ends everything with the host.
func (t *talk) end() {
	t.hangUp()
	if a := t.attempt; a != nil {
		t.attempt = nil
		a.cancel()
		t.pool.closing.Go(func() {
			<-a.done
			a.line.close()
		})
	}
}

// reconsider forgets how a host without streams is spoken with.
func (t *talk) reconsider() {
	if t.line != nil && t.line.via != ViaStream {
		t.hangUp()
	}
}

// ready has the host be spoken with, if need be by an attempt, and returns
// until when the host has time for an answer; zero leaves it the Timeout. A host
// that was lost is waited for as long as patience lasts.
func (t *talk) ready(ctx context.Context, patience time.Duration) (until time.Time, err error) {
	if t.line != nil && t.line.stale() {
		t.reconsider()
	}
	if t.line != nil {
		return time.Time{}, nil
	}
	begun := t.attempt == nil
	if begun {
		t.attempt = t.pool.begin(t.host, pauseAfter(t.losses), t.why != nil)
	}
	if err := t.await(ctx, patience); err != nil {
		return time.Time{}, err
	}
	a := t.attempt
	t.attempt, t.line = nil, a.line
	if a.err != nil {
		t.why = a.err
		t.losses++
	}
	if !begun {
		return time.Time{}, a.err // it was over some time ago
	}
	return a.until, a.err
}

// pauseAfter is how long a host is left alone that was lost so often in a row:
// not at all at first, then from a quarter of a second up to half a minute.
func pauseAfter(losses int) time.Duration {
	if losses <= 1 {
		return 0
	}
	longest := 30 * time.Second
	pause := min(250*time.Millisecond<<min(losses-2, 8), longest)
	return pause*3/4 + rand.N(pause/2) //nolint:gosec // spreads load, guards no secret
}

// await waits for the attempt: to its end for a host that was never lost.
func (t *talk) await(ctx context.Context, patience time.Duration) error {
	var late <-chan time.Time
	if t.why != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-t.attempt.done:
		return nil
	case <-late:
		return t.why // still
	case <-ctx.Done():
		return remote.Errorf(remote.Cancelled, "stopped before it was begun: %w", context.Cause(ctx))
	}
}

// snapshot asks the host for its snapshot, in the way that it understands.
func (t *talk) snapshot(ctx context.Context, patience time.Duration) (taken *snapshot.Snapshot, err error) {
	until, err := t.ready(ctx, patience)
	if err != nil {
		return nil, err
	}
	ctx, done, err := t.turn(ctx, until, t.pool.Timeout)
	if err != nil {
		return nil, err
	}
	defer done()
	taken, err = t.line.snapshot(ctx, t.host, t.pool.Runner)
	switch {
	case err == nil:
		t.why, t.losses = nil, 0
	case !errors.Is(err, ErrRefused):
		t.lose(err)
	}
	return taken, err
}

// carryOut has the host carry out a report, in the way that it understands. It
// begins nothing with a host that was lost since it was asked: what was seen of
// it holds no more.
func (t *talk) carryOut(ctx context.Context, report enforce.Report) (Execution, error) {
	if t.line == nil {
		return Execution{}, remote.Errorf(remote.Unreachable, "%s was lost before the report was sent", t.host.Name)
	}
	ctx, done, err := t.turn(ctx, time.Time{}, t.pool.timeFor(report))
	if err != nil {
		return Execution{}, err
	}
	defer done()
	switch t.line.via {
	case ViaStream:
		done, err := t.line.execute(ctx, report)
		if err != nil && !errors.Is(err, ErrRefused) {
			t.lose(err)
		}
		return done, err
	case ViaCommands:
		return Commands{t.pool.Runner}.Execute(ctx, t.host, report)
	default:
		return Execution{}, remote.Errorf(remote.GenvMissing, "there is no genv on %s, so it is only read", t.host.Name)
	}
}

// turn waits in the queue, if the host is to run a command, and then has the
// time limit begin.
func (t *talk) turn(ctx context.Context, until time.Time, limit time.Duration) (_ context.Context, done func(), err error) {
	leave := func() {}
	if t.line.via != ViaStream {
		if leave, err = t.pool.enter(ctx); err != nil {
			return nil, nil, err
		}
	}
	if until.IsZero() || t.line.via != ViaStream {
		until = time.Now().Add(limit)
	}
	ctx, cancel := context.WithDeadline(ctx, until)
	return ctx, func() { cancel(); leave() }, nil
}
