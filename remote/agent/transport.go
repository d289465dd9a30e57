package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/readonly"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// Via is how to ask a host. The texts appear in JSON.
type Via string

// The ways, best first. A connection takes the first one that the host has.
const (
	ViaStream   Via = "stream"    // genv usage serve: a message per request
	ViaCommands Via = "commands"  // genv usage snapshot and execute: genv 1.4.3
	ViaReadOnly Via = "read-only" // no genv there: nvidia-smi and /proc
)

// transport asks a connected host: a *streamTransport, *Commands or *readOnly. It is safe for concurrent use.
type transport interface {
	via() Via
	capabilities() []string
	Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error)
	Execute(ctx context.Context, host remote.Host, o order.Order) (Execution, error)
	// close ends the calls under way.
	close()
}

// Session is a command that keeps running on a host.
type Session interface {
	io.Reader // its stdout
	io.Writer // its stdin
	Close()   // ends it
	// Wait returns the command's error, an *remote.Error, once Read has returned io.EOF or Close was called.
	Wait() error
}

// Start starts a command that keeps running.
type Start func(ctx context.Context, host remote.Host, command remote.Command) (Session, error)

// StartWith converts a function that returns its own type of sessions.
func StartWith[S Session](start func(context.Context, remote.Host, remote.Command) (S, error)) Start {
	return func(ctx context.Context, host remote.Host, command remote.Command) (Session, error) {
		session, err := start(ctx, host, command)
		if err != nil {
			return nil, err
		}
		return session, nil
	}
}

type readOnly struct{ readonly.Reading }

func (readOnly) via() Via               { return ViaReadOnly }
func (readOnly) capabilities() []string { return []string{RequestSnapshot} }
func (readOnly) close()                 {}

func (readOnly) Execute(_ context.Context, host remote.Host, _ order.Order) (Execution, error) {
	return Execution{}, remote.Errorf(remote.GenvMissing, "there is no genv on %s, so it is only read", host.Name)
}

func (c *Conn) dial(ctx context.Context) (transport, error) {
	p, began := c.pool, time.Now()
	stream, err := c.openStream(ctx)
	if !hasNoServe(err) {
		err = remote.Diagnose(ctx, p.Network, c.host, err)
	}
	var t transport
	switch class := remote.ClassOf(err); {
	case err == nil:
		t = stream
	case class == remote.CommandFailed && hasNoServe(err):
		commands := &Commands{Network: p.Network, Measure: p.Measure, slow: time.Since(began)}
		if p.Types {
			commands.types = new(nvidiasmi.Types)
		}
		if err := commands.requireRoot(ctx, c.host); err != nil {
			return nil, err
		}
		t = commands
	case class == remote.GenvMissing:
		t = &readOnly{readonly.Reading{Runner: p.Network}}
	default:
		return nil, err
	}
	event := p.Log.Info()
	if t.via() == ViaReadOnly {
		event = p.Log.Warn()
	}
	event.Str("host", c.host.Name).Str("via", string(t.via())).AnErr("because", err).Msg(viaTexts[t.via()])
	return t, nil
}

var viaTexts = map[Via]string{
	ViaStream:   "connected to genv",
	ViaCommands: "the genv on this host is an older one: each request is a command",
	ViaReadOnly: "there is no genv on this host: it is only read, and nothing is enforced",
}

// hasNoServe recognises a genv without `usage serve` by the text of Python's argparse, which 1.4.3 uses.
func hasNoServe(err error) bool {
	e, ok := errors.AsType[*remote.Error](err)
	return ok && strings.Contains(e.Stderr, "invalid choice: 'serve'")
}

// fallbackAge is after how long a host without `usage serve` is asked for it again: it may have another genv.
const fallbackAge = time.Hour

type streamTransport struct {
	stream  *Stream
	session Session
	pool    *Pool
	token   string // of the conversation

	mu       sync.Mutex
	revision uint64
	last     *snapshot.Snapshot // of that revision
	told     *service.Allowance // the host has it

	tookOver *atomic.Bool // of the Conn
	orders   sync.RWMutex // read-locked by orders under way
	leaves   atomic.Bool  // give back the lease after the orders
}

func (*streamTransport) via() Via                 { return ViaStream }
func (t *streamTransport) capabilities() []string { return t.stream.Greeting.Capabilities }

var errClosed = fmt.Errorf("%w: the connection was closed", ErrEnded)

func (t *streamTransport) close() {
	t.stream.fail(errClosed)
	t.session.Close()
}

func (t *streamTransport) finish() {
	defer t.pool.ending.Delete(t)
	t.orders.Lock()
	defer t.orders.Unlock()
	if t.leaves.Load() {
		t.giveBack(context.Background())
	}
	t.close()
}

// Snapshot asks for the snapshot. An unchanged one is the same value as before.
func (t *streamTransport) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	t.mu.Lock()
	revision, last, told := t.revision, t.last, t.told
	t.mu.Unlock()
	request := SnapshotRequest{
		Revision: revision, MaxAgeMS: enforce.DefaultMaxAge.Milliseconds(),
		Types: t.pool.Types, Codes: true,
	}
	allowance := t.pool.allowance(host.Name)
	if allowance != told {
		request.Allowance = allowance
	}
	if t.stream.Greeting.Can(CapabilityFence) {
		request.Lease = leaseFor(t.pool.lease.Load(), t.tookOver.Load())
	}
	timed := func() any {
		if t.pool.DeviceAge != nil {
			request.AgeMS = t.pool.DeviceAge().Milliseconds()
		}
		if t.pool.MaxAge != nil {
			request.MaxAgeMS = t.pool.MaxAge(host).Milliseconds()
		}
		if deadline, ok := ctx.Deadline(); ok {
			request.WithinMS = time.Until(deadline).Milliseconds()
		}
		return request
	}
	var answer SnapshotAnswer
	if err := t.call(ctx, RequestSnapshot, timed, &answer); err != nil {
		return nil, err
	}
	if request.Lease != nil {
		t.tookOver.Store(true)
	}
	t.mu.Lock()
	t.told = allowance
	t.mu.Unlock()
	if answer.Snapshot != nil {
		return t.changed(&answer)
	}
	return t.unchanged(&answer, revision, last)
}

func (t *streamTransport) unchanged(answer *SnapshotAnswer, revision uint64, last *snapshot.Snapshot) (
	*snapshot.Snapshot, error,
) {
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

// skew is how far the host's clock is ahead. It returns before if the two differ by less than a second.
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

// Execute sends an order, once. The outcome is unknown after any error except ErrRefused and ErrNotSent, or if an item
// has none.
func (t *streamTransport) Execute(ctx context.Context, _ remote.Host, o order.Order) (Execution, error) {
	t.orders.RLock()
	defer t.orders.RUnlock()
	encoded, err := order.EncodeNative(o)
	if err != nil {
		return Execution{}, &remote.Error{Class: remote.InvalidOutput, Err: err}
	}
	var answer Execution
	request := ExecuteRequest{
		Order: encoded, ID: o.ID, AllReasons: o.Reasons(), Options: o.Options,
		Lease: leaseFor(t.pool.lease.Load(), true),
	}
	err = t.call(ctx, RequestExecute, func() any { return request }, &answer)
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

// call makes a request and reads its answer. A short-lived goroutine encodes the request, so that the stack of this one
// stays small: thousands wait for hosts at a time.
func (t *streamTransport) call(ctx context.Context, name string, request func() any, answer any) error {
	body, err := within(context.WithoutCancel(ctx), func() ([]byte, error) { return json.Marshal(request()) })
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
