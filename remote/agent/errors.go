package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/agent/frame"
)

// ErrRefused is wrapped if the host understood a request and can't do it. The connection remains usable.
var ErrRefused = errors.New("the host says")

// ErrLater says that a host has seen a later controller of the same election or state folder.
var ErrLater = errors.New("a later controller acts on the host")

const (
	codeFailed  = "failed"  // the host can't do it
	codeLater   = "later"   // a later controller of the same election or state folder has the lease
	codeForeign = "foreign" // another controller has it
	codeEnded   = "ended"   // the leader of another election had it, and has ended; only by fromText
)

// refusedError is the refusal of a host: JSON for a controller that asks for codes, else only the text.
type refusedError struct {
	Code string `json:"code"`
	Text string `json:"text"` // for people
}

func (e *refusedError) Error() string { return ErrRefused.Error() + ": " + e.Text }

func (e *refusedError) Is(target error) bool {
	return target == ErrRefused || target == ErrLater && e.Code == codeLater
}

func coded(err error) error {
	text := err.Error()
	r := refusedError{codeFailed, text[:min(len(text), maxRefusalKept)]}
	if held, ok := errors.AsType[*fence.RefusedError](err); ok {
		if r.Code = codeLater; held.Foreign {
			r.Code = codeForeign
		}
	}
	data, broken := json.Marshal(r)
	if broken != nil {
		return err
	}
	return errors.New(string(data))
}

func refusalOf(body []byte) error {
	var r refusedError
	if json.Unmarshal(body, &r) != nil || r.Code == "" {
		r = fromText(string(body))
	}
	r.Text = shortened(r.Text, maxRefusalKept)
	return &r
}

func fromText(said string) refusedError {
	const (
		refused = "refused: "
		ended   = "and has ended: the host waits for the next leader of its election"
	)
	code := codeFailed
	switch rest, lease := strings.CutPrefix(said, refused); {
	case !lease:
	case strings.HasSuffix(rest, ended):
		code = codeEnded
	case strings.HasPrefix(rest, "replaced by "):
		code = codeLater
	default:
		code = codeForeign
	}
	return refusedError{code, said}
}

const (
	electedStep = "leave this controller running: it continues as a standby. If it still claims to lead, " +
		"check its log and `genv remote doctor -H @all`"
	folderStep = "stop this controller: a newer start of the same state folder acts on the host. " +
		"If there is none, because the folder was restored from a backup, remove controller-id from it and " +
		"start once with --take-over"
	endedStep = "start a controller of that election, or start this one once with --take-over: it is needed after " +
		"--leader has changed"
	runStep = "only one controller may act on a host: end the other one, or ask it (`genv remote top`). --dry-run shows " +
		"what this run would do"
)

func refusedByHost(err error, lease *fence.LeaseRequest) *remote.Error {
	e := &remote.Error{Class: remote.Replaced, Err: err}
	switch refused, ok := errors.AsType[*refusedError](err); {
	case !ok || refused.Code == codeFailed:
		e.Class = remote.CommandFailed
	case lease != nil && !lease.Leases():
		e.Next = runStep
	case refused.Code == codeEnded:
		e.Next = endedStep
	case refused.Code == codeLater:
		if e.Next = electedStep; lease != nil && !lease.Elected() {
			e.Next = folderStep
		}
	}
	return e
}

const maxRefusalKept = 4096

// classify gives an error its class. ctx is that of the call, if any. If a call broke the stream, the cause of that
// call's end is the error of all calls.
func classify(ctx context.Context, err error) error {
	switch {
	case errors.As(err, new(*remote.Error)):
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

// cut says why a stream ended at the other end. errCut is wrapped unless a new connection would fail in the same way.
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
	errCut = errors.New("the connection was cut off") // wrapped when a stream ended at the other end
	// errHungUp is wrapped when the host's genv ended in order: it was idle, or another program replaced it.
	errHungUp = fmt.Errorf("%w: genv on the host ended in order", errCut)
)

// closeReason is why the session's output ended, if known; nil if genv ended in order.
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
