package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/stream"
	"github.com/seed-3119e985/genv/snapshot"
)

// ask puts the question for a snapshot. One that did not change is the same
// value as before.
func (t *talk) ask(ctx context.Context) (*snapshot.Snapshot, error) {
	var answer SnapshotAnswer
	if err := t.call(ctx, RequestSnapshot, SnapshotRequest{Revision: t.revision}, &answer); err != nil {
		return nil, err
	}
	if answer.Snapshot == nil {
		if t.last == nil || answer.Revision != t.revision {
			return nil, remote.Errorf(remote.InvalidOutput, "revision %d is said to be unchanged, and %d is at hand", answer.Revision, t.revision)
		}
		return t.last, nil
	}
	taken, err := snapshot.DecodeNative(answer.Snapshot)
	if err != nil {
		return nil, &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	t.revision, t.last = answer.Revision, taken
	return taken, nil
}

// execute sends a report, once, and checks that each item has its outcome.
func (t *talk) execute(ctx context.Context, report enforce.Report, grace time.Duration, kill bool) (Execution, error) {
	encoded, err := enforce.EncodeNativeReport(report)
	if err != nil {
		return Execution{}, &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	var answer ExecuteAnswer
	request := ExecuteRequest{Report: encoded, GraceMS: grace.Milliseconds(), Kill: kill}
	if err := t.call(ctx, RequestExecute, request, &answer); err != nil {
		return Execution{}, err
	}
	done := Execution{Lines: answer.Lines, Outcomes: answer.Outcomes}
	if items := len(report.Detach) + len(report.Terminate); len(done.Outcomes) != items {
		return done, remote.Errorf(remote.OutcomeUnknown, "%d outcomes came for %d items", len(done.Outcomes), items)
	}
	return done, nil
}

func (t *talk) call(ctx context.Context, name string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	reply, err := t.client.Call(ctx, name, body)
	if err != nil {
		return classify(ctx, err)
	}
	if err := json.Unmarshal(reply, answer); err != nil {
		return remote.Errorf(remote.InvalidOutput, "the answer to %s: %w", name, err)
	}
	return nil
}

// classify says what became of a call.
func classify(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, stream.ErrRefused):
		return &remote.Error{Class: remote.CommandFailed, Err: err}
	case errors.Is(err, stream.ErrProtocol):
		return &remote.Error{Class: remote.InvalidOutput, Err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return remote.Errorf(remote.Timeout, "no answer in time: %w", err)
	case ctx.Err() != nil:
		return &remote.Error{Class: remote.Cancelled, Err: err}
	}
	return remote.Errorf(remote.OutcomeUnknown, "the conversation was cut off: %w", err)
}
