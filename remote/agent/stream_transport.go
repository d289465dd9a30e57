package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/wire"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/controllers"
	"github.com/seed-3119e985/genv/remote/agent/guarding"
	"github.com/seed-3119e985/genv/remote/agent/untrusted"
	"github.com/seed-3119e985/genv/snapshot"
)

// streamTransport asks `genv usage serve` over a session that stays.
type streamTransport struct {
	stream  *Stream
	session Session
	pool    *Pool

	mu       sync.Mutex
	revision uint64
	last     *snapshot.Snapshot // of that revision
	report   *reportTurn        // nil unless the host carries out a report and answers nothing else meanwhile

	announced *announcement      // what the host knows about this controller
	others    controllers.Answer // what it said last about others
	tookOver  *atomic.Bool       // of the Conn
}

func (*streamTransport) via() Via { return ViaStream }

func (t *streamTransport) can() Capabilities {
	can := t.stream.Greeting.Can
	return Capabilities{
		Snapshot: can(RequestSnapshot),
		Execute:  can(RequestExecute),
		Notify:   can(RequestNotify),
		Parallel: can(CapabilityParallel),
		Guard:    can(guarding.Name),
		Fence:    can(CapabilityFence),
	}
}

// errClosed ends the calls of a connection that is closed at this end.
var errClosed = fmt.Errorf("%w: the connection was closed", ErrEnded)

func (t *streamTransport) close() {
	t.stream.fail(errClosed)
	t.session.Close()
}

// Snapshot asks for the snapshot. One that did not change is the same value as
// before.
func (t *streamTransport) Snapshot(ctx context.Context, _ remote.Host) (*snapshot.Snapshot, error) {
	if err := t.awaitReport(ctx); err != nil {
		return nil, err
	}
	t.mu.Lock()
	revision, last := t.revision, t.last
	t.mu.Unlock()
	request := SnapshotRequest{Revision: revision, AgeMS: t.pool.deviceAge().Milliseconds()}
	self := t.toAnnounce()
	if self != nil {
		request.Controller, request.Claim = &self.self, t.announcedClaim(self)
	}
	var answer SnapshotAnswer
	if err := t.call(ctx, RequestSnapshot, request, &answer); err != nil {
		return nil, err
	}
	t.learnOfOthers(self, answer.Answer)
	if answer.Snapshot == nil {
		if last == nil || answer.Revision != revision {
			return nil, remote.Errorf(remote.InvalidOutput, "the host reports revision %d as unchanged, but the last one that came is %d", answer.Revision, revision)
		}
		return last, nil
	}
	taken, err := snapshot.DecodeNative(answer.Snapshot)
	if err != nil {
		return nil, &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revision, t.last = answer.Revision, taken
	return taken, nil
}

// notify has messages shown.
func (t *streamTransport) notify(ctx context.Context, messages []Message) ([]Shown, error) {
	var answer NotifyAnswer
	err := t.call(ctx, RequestNotify, NotifyRequest{Messages: messages}, &answer)
	return answer.shown(), err
}

// Execute sends a report, once, and checks that each item has its outcome. Once
// it is sent, whatever goes wrong leaves the outcome unknown.
func (t *streamTransport) Execute(ctx context.Context, _ remote.Host, report enforce.Report) (Execution, error) {
	encoded, err := wire.EncodeNative(report)
	if err != nil {
		return Execution{}, &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	var answer Execution
	request := ExecuteRequest{
		Report: encoded, ID: report.ID, Because: wire.Reasons(report), Judged: wire.Judged(report),
		GraceMS: report.Grace.Milliseconds(), Kill: report.Kill, Unprotected: report.Unprotected,
		Claim: t.pool.announced.Load().claimFor(true),
	}
	end := t.beginReport()
	defer end()
	err = t.call(ctx, RequestExecute, request, &answer)
	if err == nil {
		err = untrusted.Check(report, answer.Outcomes)
	}
	if err != nil && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrNotSent) {
		return Execution{}, remote.Errorf(remote.OutcomeUnknown, "the report was sent, and what came of it is not known: %w", err)
	}
	answer.Lines = untrusted.Lines(answer.Lines, 2*len(answer.Outcomes))
	answer.Warnings = untrusted.Lines(answer.Warnings, 2*len(answer.Outcomes)+untrusted.MaxWarnings)
	untrusted.ShortenReasons(answer.Outcomes)
	return answer, err
}

func (t *streamTransport) call(ctx context.Context, name string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	reply, err := t.stream.Call(ctx, name, body)
	if err != nil {
		return t.explain(ctx, err)
	}
	if n := bytes.Count(reply, []byte{','}); n > maxValues {
		return remote.Errorf(remote.InvalidOutput, "the answer to %s: %d values are more than the %d that are read", name, n, maxValues)
	}
	if err := json.Unmarshal(reply, answer); err != nil {
		return remote.Errorf(remote.InvalidOutput, "the answer to %s: %w", name, err)
	}
	return nil
}

// maxValues bounds what an answer costs once it is decoded: a comma takes one
// byte on the wire and many in memory.
const maxValues = 1 << 20
