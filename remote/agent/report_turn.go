package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/remote"
)

// reportTurn is the time in which a host without CapabilityParallel carries out
// reports.
type reportTurn struct {
	reports int       // under way or waiting for their turn
	begun   time.Time // the first one
	done    chan struct{}
}

// reportWait is for how long after the begin of a report a snapshot waits for its
// end: most reports end sooner, and a cycle must not wait for the others.
const reportWait = time.Second

// beginReport notes that a report begins, and returns what to call at its end.
func (t *streamTransport) beginReport() (end func()) {
	if t.stream.turn == nil {
		return func() {}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.report == nil {
		t.report = &reportTurn{begun: time.Now(), done: make(chan struct{})}
	}
	r := t.report
	r.reports++
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if r.reports--; r.reports == 0 {
			t.report = nil
			close(r.done)
		}
	}
}

// awaitReport waits a short time for the end of a report that keeps the host from
// answering.
func (t *streamTransport) awaitReport(ctx context.Context) error {
	t.mu.Lock()
	r := t.report
	t.mu.Unlock()
	if r == nil {
		return nil
	}
	timer := time.NewTimer(time.Until(r.begun.Add(reportWait)))
	defer timer.Stop()
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return notBegun(context.Cause(ctx))
	case <-timer.C:
	}
	return &remote.Error{
		Class: remote.Timeout,
		Err:   fmt.Errorf("%w: the host is %w", ErrNotSent, errReporting),
		Next:  "wait until the report is carried out; with the same version of genv as here, the host answers meanwhile",
	}
}

// errReporting says why a host without CapabilityParallel is not asked.
var errReporting = errors.New("still carrying out a report")
