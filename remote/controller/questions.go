package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

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

// execute sends a report, once, and checks that each item has its outcome. Once
// it is sent, whatever goes wrong leaves the outcome unknown.
func (t *talk) execute(ctx context.Context, report enforce.Report) (Execution, error) {
	encoded, err := enforce.EncodeNativeReport(report)
	if err != nil {
		return Execution{}, &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	var answer ExecuteAnswer
	request := ExecuteRequest{Report: encoded, GraceMS: report.Grace.Milliseconds(), Kill: report.Kill}
	err = t.call(ctx, RequestExecute, request, &answer)
	if err == nil {
		err = paired(report, answer.Outcomes)
	}
	if err != nil && !errors.Is(err, stream.ErrRefused) && !errors.Is(err, stream.ErrNotSent) {
		return Execution{}, remote.Errorf(remote.OutcomeUnknown, "the report was sent, and what came of it is not known: %w", err)
	}
	return Execution{Lines: answer.Lines, Outcomes: answer.Outcomes}, err
}

// paired checks that there is one outcome for each item, in the order of the
// report: the detachments, then the terminations.
func paired(report enforce.Report, outcomes []enforce.Outcome) error {
	if items := len(report.Detach) + len(report.Terminate); len(outcomes) != items {
		return remote.Errorf(remote.InvalidOutput, "%d outcomes came for %d items", len(outcomes), items)
	}
	for i, o := range outcomes {
		var item enforce.Outcome
		if i < len(report.Detach) {
			d := &report.Detach[i]
			item = enforce.Outcome{Device: d.Device, EID: d.Environment.EID}
		} else {
			p := &report.Terminate[i-len(report.Detach)].Process
			item = enforce.Outcome{PID: p.PID, EID: p.EID}
		}
		if o.PID != item.PID || o.Device != item.Device || o.EID != item.EID || !o.Status.Known() {
			return remote.Errorf(remote.InvalidOutput, "outcome %d is not that of its item: it says %+v", i, o)
		}
	}
	return nil
}

func (t *talk) call(ctx context.Context, name string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	reply, err := t.client.Call(ctx, name, body)
	if err != nil {
		return t.classify(ctx, err)
	}
	if err := json.Unmarshal(reply, answer); err != nil {
		return remote.Errorf(remote.InvalidOutput, "the answer to %s: %w", name, err)
	}
	return nil
}

// classify says what became of a question.
func (t *talk) classify(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, stream.ErrRefused):
		return &remote.Error{Class: remote.CommandFailed, Err: err}
	case errors.Is(err, stream.ErrVersion):
		return &remote.Error{Class: remote.Version, Err: err}
	case errors.Is(err, stream.ErrProtocol), errors.Is(err, stream.ErrNoGreeting):
		return &remote.Error{Class: remote.InvalidOutput, Err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return remote.Errorf(remote.Timeout, "no answer in time: %w", err)
	case ctx.Err() != nil:
		return &remote.Error{Class: remote.Cancelled, Err: err}
	}
	return t.cut(ctx, err)
}

// cut says why a conversation ended at the other end. That the host wrote too
// much, or that its genv failed, is that host's error; that the connection or
// the idle time was over is nobody's.
func (t *talk) cut(ctx context.Context, err error) error {
	ended := t.verdict(ctx)
	switch remote.ClassOf(ended) {
	case remote.OutcomeUnknown:
		return remote.Errorf(remote.OutcomeUnknown, "%w: %w", errCut, ended)
	case remote.CommandFailed: // it was killed, or failed: a new one may do better
		if ended == nil {
			return remote.Errorf(remote.OutcomeUnknown, "%w: %w", errCut, err)
		}
		return remote.Errorf(remote.CommandFailed, "%w: %w", errCut, ended)
	}
	return ended
}
