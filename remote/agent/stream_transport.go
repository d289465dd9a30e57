package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot"
)

type streamTransport struct {
	stream  *Stream
	session Session
	pool    *Pool
	able    Capabilities
	token   string // of the conversation

	mu       sync.Mutex
	revision uint64
	last     *snapshot.Snapshot // of that revision

	tookOver *atomic.Bool // of the Conn
}

func (*streamTransport) via() Via { return ViaStream }

func (t *streamTransport) can() Capabilities { return t.able }

func ableTo(g frame.Greeting) Capabilities {
	return Capabilities{
		Snapshot: g.Can(RequestSnapshot),
		Execute:  g.Can(RequestExecute),
		Notify:   g.Can(RequestNotify),
		Over:     g.Can(CapabilityOver),
		Guard:    g.Can(RequestGuard),
		Fence:    g.Can(CapabilityFence),
	}
}

// errClosed ends the calls of a connection that is closed at this end.
var errClosed = fmt.Errorf("%w: the connection was closed", ErrEnded)

func (t *streamTransport) close() {
	t.stream.fail(errClosed)
	t.session.Close()
}

// Snapshot asks for the snapshot. One that did not change is the same value as before.
func (t *streamTransport) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	t.mu.Lock()
	revision, last := t.revision, t.last
	t.mu.Unlock()
	request := SnapshotRequest{
		Revision: revision, MaxAgeMS: enforce.DefaultMaxAge.Milliseconds(),
		Types: t.pool.Types, Allowance: t.pool.allowance(host.Name), Codes: true,
	}
	if t.pool.DeviceAge != nil {
		request.AgeMS = t.pool.DeviceAge().Milliseconds()
	}
	if t.pool.MaxAge != nil {
		request.MaxAgeMS = t.pool.MaxAge(host).Milliseconds()
	}
	if deadline, ok := ctx.Deadline(); ok {
		request.WithinMS = time.Until(deadline).Milliseconds()
	}
	if t.able.Fence {
		request.Lease = leaseFor(t.pool.lease.Load(), t.tookOver.Load())
	}
	var answer SnapshotAnswer
	if err := t.call(ctx, RequestSnapshot, request, &answer); err != nil {
		return nil, err
	}
	if request.Lease != nil {
		t.tookOver.Store(true)
	}
	if answer.Snapshot != nil {
		return t.changed(&answer)
	}
	if last == nil || answer.Revision != revision {
		return nil, remote.Errorf(remote.InvalidOutput,
			"the host reports revision %d as unchanged, but the last one that came is %d", answer.Revision, revision)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if skew := answer.skew(time.Now(), last.Skew); !slices.Equal(answer.Tokens, last.Tokens) || skew != last.Skew {
		copied := *last
		copied.Tokens, copied.Skew = answer.Tokens, skew
		t.last = &copied
	}
	return t.last, nil
}

// skew is how far the host's clock is ahead, or what it was before if that differs by less than a second: the
// snapshot is then the same.
func (a *SnapshotAnswer) skew(now time.Time, before *time.Duration) *time.Duration {
	if a.ClockMS == 0 {
		return nil
	}
	skew := time.UnixMilli(a.ClockMS).Sub(now)
	if before != nil && (skew-*before).Abs() < time.Second {
		return before
	}
	return &skew
}

// maxSinceBoot is more than any host runs.
const maxSinceBoot = 50 * 365 * 24 * time.Hour

func (t *streamTransport) changed(answer *SnapshotAnswer) (*snapshot.Snapshot, error) {
	taken, err := snapshot.DecodeNative(answer.Snapshot)
	if err != nil {
		return nil, &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	if since := answer.SinceBootMS; since > 0 && since < maxSinceBoot.Milliseconds() {
		taken.Boot = time.Now().Add(-time.Duration(since) * time.Millisecond)
	}
	taken.Token, taken.Tokens, taken.Skew = t.token, answer.Tokens, answer.skew(time.Now(), nil)
	taken.Bound()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.revision, t.last = answer.Revision, taken
	return taken, nil
}

// Execute sends an order, once, and checks that each item has its outcome. Once
// it is sent, whatever goes wrong leaves the outcome unknown.
func (t *streamTransport) Execute(ctx context.Context, _ remote.Host, o order.Order) (Execution, error) {
	encoded, err := order.EncodeNative(o)
	if err != nil {
		return Execution{}, &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	var answer Execution
	request := ExecuteRequest{
		Order: encoded, ID: o.ID, AllReasons: o.Reasons(),
		GraceMS: o.Grace.Milliseconds(), Options: o.Options,
		Lease: leaseFor(t.pool.lease.Load(), true),
	}
	err = t.call(ctx, RequestExecute, request, &answer)
	if err == nil {
		err = checkOutcomes(o, answer.Outcomes)
	}
	if err != nil && !errors.Is(err, ErrRefused) && !errors.Is(err, ErrNotSent) {
		return Execution{}, remote.Errorf(remote.OutcomeUnknown,
			"the order was sent, and what came of it is not known: %w", err)
	}
	answer.Lines = boundLines(answer.Lines, 2*len(answer.Outcomes))
	answer.Warnings = boundLines(answer.Warnings, 2*len(answer.Outcomes)+maxWarnings)
	shortenReasons(answer.Outcomes)
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
	if err = snapshot.CheckAmount(reply); err == nil {
		err = json.Unmarshal(reply, answer)
	}
	if err != nil {
		return remote.Errorf(remote.InvalidOutput, "the answer to %s: %w", name, err)
	}
	return nil
}
