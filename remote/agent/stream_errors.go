package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/frame"
)

// classify gives an error its class. ctx is that of the call; an error of a stream
// that a call has ended has no call any more, but the cause of the call's end.
func classify(ctx context.Context, err error) error {
	var known *remote.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, ErrRefused):
		return refusedByHost(err, nil)
	case errors.Is(err, frame.ErrVersion):
		return &remote.Error{Class: remote.Version, Err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, errNotRead):
		if !errors.Is(err, context.DeadlineExceeded) { // which says so itself
			err = fmt.Errorf("%w: %w", remote.ErrLate, err)
		}
		return &remote.Error{Class: remote.Timeout, Err: err}
	case ctx.Err() != nil, errors.Is(err, context.Canceled):
		return &remote.Error{Class: remote.Cancelled, Err: err}
	}
	return &remote.Error{Class: remote.InvalidOutput, Err: err} // frame.ErrProtocol, frame.ErrNoGreeting
}

// explain is the error of a call, or of a stream that ended by itself.
func (t *streamTransport) explain(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrRefused):
		return refusedByHost(err, t.pool.lease.Load())
	case !errors.Is(err, ErrEnded) || ctx.Err() != nil:
		return classify(ctx, err)
	}
	why := t.cut(ctx, err)
	if errors.Is(err, ErrNotSent) {
		return &remote.Error{Class: remote.ClassOf(why), Err: fmt.Errorf("%w: %w", ErrNotSent, why)}
	}
	return why
}

// cut says why a stream ended at the other end. That the host wrote too much is
// that host's error; after all other ends the host may do better the next time.
func (t *streamTransport) cut(ctx context.Context, err error) error {
	known, reason := t.closeReason(ctx)
	switch {
	case reason == nil && known:
		return remote.Errorf(remote.OutcomeUnknown, "%w: %w", errHungUp, err)
	case reason == nil:
		return remote.Errorf(remote.OutcomeUnknown, "%w: %w", errCut, err)
	}
	switch class := remote.ClassOf(reason); class {
	case remote.OutcomeUnknown, remote.CommandFailed, remote.OpenSSH:
		return remote.Errorf(class, "%w: %w", errCut, reason)
	}
	return reason
}

var (
	// errCut is wrapped when a stream ended at the other end.
	errCut = errors.New("the connection was cut off")
	// errHungUp is wrapped when the host's genv ended in order: it was idle, or was replaced by another program.
	errHungUp = fmt.Errorf("%w: genv on the host ended in order", errCut)
)

// closeReason says whether it is known why the session's output ended, and the reason: nil if genv ended in order.
func (t *streamTransport) closeReason(ctx context.Context) (known bool, reason error) {
	over := make(chan error, 1)
	t.pool.running.Go(func() { over <- t.session.Wait() })
	timer := time.NewTimer(time.Second) // the exit status follows the output at once, if at all
	defer timer.Stop()
	select {
	case err := <-over:
		return true, err
	case <-timer.C:
	case <-ctx.Done():
	}
	return false, nil
}
