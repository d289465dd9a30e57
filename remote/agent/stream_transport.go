package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/wire"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/controllers"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/agent/guarding"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
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
		request.Controller, request.Claim = &self.self, self.claimFor(t.tookOver.Load())
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
		Report: encoded, ID: report.ID, Because: wire.Reasons(report),
		GraceMS: report.Grace.Milliseconds(), Kill: report.Kill, Unprotected: report.Unprotected,
		Claim: t.pool.announced.Load().claimFor(true),
	}
	end := t.beginReport()
	defer end()
	err = t.call(ctx, RequestExecute, request, &answer)
	if err == nil {
		err = paired(report, answer.Outcomes)
	}
	if err != nil && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrNotSent) {
		return Execution{}, remote.Errorf(remote.OutcomeUnknown, "the report was sent, and what came of it is not known: %w", err)
	}
	answer.Lines = bounded(answer.Lines, 2*len(answer.Outcomes))
	answer.Warnings = bounded(answer.Warnings, 2*len(answer.Outcomes)+maxWarnings)
	for i, o := range answer.Outcomes {
		answer.Outcomes[i].Reason = shortened(o.Reason, maxReason)
	}
	return answer, err
}

// What is kept of what a host says for people: it is shown to the administrator.
const (
	maxLine     = 4096 // bytes
	maxReason   = 1024 // bytes
	maxWarnings = 64   // in addition to two for each item
)

// bounded keeps as many lines as there can be, and of each the beginning.
func bounded(lines []string, limit int) []string {
	kept := lines[:min(len(lines), limit)]
	for i, line := range kept {
		kept[i] = shortened(line, maxLine)
	}
	return kept
}

// shortened is the beginning of what a host says, in memory of its own.
func shortened(said string, limit int) string {
	if len(said) <= limit {
		return said
	}
	return strings.Clone(text.Cut(said, limit))
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

// classify gives an error its class. ctx is that of the call; an error of a stream
// that a call has ended has no call any more, but the cause of the call's end.
func classify(ctx context.Context, err error) error {
	var known *remote.Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, ErrRefused):
		return refusedByHost(err)
	case errors.Is(err, ErrVersion):
		return &remote.Error{Class: remote.Version, Err: err}
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, errNotRead):
		return remote.Errorf(remote.Timeout, "no answer in time: %w", err)
	case ctx.Err() != nil, errors.Is(err, context.Canceled):
		return &remote.Error{Class: remote.Cancelled, Err: err}
	}
	return &remote.Error{Class: remote.InvalidOutput, Err: err} // ErrProtocol, ErrNoGreeting
}

// refusedByHost is the error of a refusal: its text says whether this controller was replaced.
func refusedByHost(err error) *remote.Error {
	switch said := strings.TrimPrefix(err.Error(), ErrRefused.Error()+": "); {
	case strings.HasPrefix(said, fence.Replaced):
		return &remote.Error{Class: remote.Replaced, Err: err, Next: "end this one: a later start acts there; if none does, because this state folder came from a backup, remove its controller-id and start once with --take-over"}
	case strings.HasPrefix(said, fence.Refused):
		return &remote.Error{Class: remote.Replaced, Err: err}
	}
	return &remote.Error{Class: remote.CommandFailed, Err: err}
}

// explain is the error of a call, or of a stream that ended by itself.
func (t *streamTransport) explain(ctx context.Context, err error) error {
	if !errors.Is(err, ErrEnded) || ctx.Err() != nil {
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
	reason := t.closeReason(ctx)
	if reason == nil {
		return remote.Errorf(remote.OutcomeUnknown, "%w: %w", errCut, err)
	}
	switch class := remote.ClassOf(reason); class {
	case remote.OutcomeUnknown, remote.CommandFailed:
		return remote.Errorf(class, "%w: %w", errCut, reason)
	}
	return reason
}

// errCut is wrapped when a stream ended at the other end.
var errCut = errors.New("the connection was cut off")

// closeReason is why the session's output ended; nil if that is not known.
func (t *streamTransport) closeReason(ctx context.Context) error {
	reason := make(chan error, 1)
	t.pool.running.Go(func() { reason <- t.session.Wait() })
	timer := time.NewTimer(time.Second) // the exit status follows the output at once, if at all
	defer timer.Stop()
	select {
	case err := <-reason:
		return err
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}
