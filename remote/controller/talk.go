package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/stream"
	"github.com/seed-3119e985/genv/snapshot"
)

// Session is a command that stays on a host. Close ends it; Wait returns its
// error after Stdout has ended, an *remote.Error, and returns after Close too.
type Session interface {
	io.Reader // its stdout
	io.Writer // its stdin
	io.Closer
	Wait() error
}

// Start begins a command that stays.
type Start func(ctx context.Context, host remote.Host, command remote.Command) (Session, error)

// talk is what is going on with one host.
type talk struct {
	streams *Streams
	host    remote.Host

	mu       sync.Mutex
	via      Via       // empty until it is found out
	since    time.Time // when it was
	session  Session
	client   *stream.Client
	revision uint64
	last     *snapshot.Snapshot // of that revision
}

// errCut is wrapped when a conversation had ended at the other end.
var errCut = errors.New("the conversation was cut off")

// fallbackFor is for how long a host without streams is taken for one: it may
// have been given another genv since.
const fallbackFor = time.Hour

func (t *talk) locked(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

// end forgets everything about the host but that it exists. A host that is
// frozen takes its time to agree, and nobody waits for it here.
func (t *talk) end() {
	if session := t.session; session != nil {
		t.streams.closing.Go(func() { _ = session.Close() }) // whatever it says, it is over
	}
	t.via, t.session, t.client, t.revision, t.last = "", nil, nil, 0, nil
}

// reconsider forgets how a host without streams is spoken with.
func (t *talk) reconsider() {
	if t.via != ViaStream {
		t.end()
	}
}

// open is ready to speak with the host: it stands in the queue if the host has
// to be logged in to, and begins. ctx then has the time limit.
func (t *talk) open(ctx context.Context, limit time.Duration) (_ context.Context, done func(), err error) {
	if t.via != ViaStream && time.Since(t.since) > fallbackFor {
		t.reconsider()
	}
	leave := func() {}
	if t.via != ViaStream {
		if leave, err = t.streams.enter(ctx); err != nil {
			return nil, nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	done = func() { cancel(); leave() }
	if t.via == "" {
		err = t.begin(ctx)
	}
	if err != nil {
		done()
		return nil, nil, err
	}
	return ctx, done, nil
}

// begin finds out how the host can be spoken with.
func (t *talk) begin(ctx context.Context) error {
	err := t.greet(ctx)
	switch class := remote.ClassOf(err); {
	case err == nil:
		t.via = ViaStream
	case class == remote.CommandFailed && knowsNoServe(err):
		t.via = ViaCommands
	case class == remote.GenvMissing:
		t.via = ViaReadOnly
	default:
		return err
	}
	t.since = time.Now()
	event := t.streams.Log.Info()
	if t.via == ViaReadOnly {
		event = t.streams.Log.Warn()
	}
	event.Str("host", t.host.Name).Str("via", string(t.via)).AnErr("because", err).Msg(sayings[t.via])
	return nil
}

var sayings = map[Via]string{
	ViaStream:   "a conversation with genv",
	ViaCommands: "genv there is an older one: one command for each question",
	ViaReadOnly: "there is no genv on this host: it is only read, and nothing is enforced",
}

// knowsNoServe tells a genv that has no `usage serve` from one that has and
// failed: Python's argparse, with which 1.4.3 reads its command line, says so.
func knowsNoServe(err error) bool {
	var e *remote.Error
	return errors.As(err, &e) && strings.Contains(e.Stderr, "invalid choice: 'serve'")
}

// greet starts `genv usage serve` and reads its greeting.
func (t *talk) greet(ctx context.Context) error {
	token := rand.Text()
	session, err := t.streams.Start(ctx, t.host, t.host.Genv("usage", "serve", "--token", token))
	if err != nil {
		return err
	}
	t.session = session
	t.client, err = stream.Open(ctx, session, session, token)
	if err == nil {
		return nil
	}
	defer t.end()
	if errors.Is(err, stream.ErrNoGreeting) && errors.Is(err, io.EOF) {
		if ended := t.verdict(ctx); ended != nil {
			return ended
		}
	}
	return t.classify(ctx, err)
}

// verdict is the session's own word on why its output ended, nil when it has
// none.
func (t *talk) verdict(ctx context.Context) error {
	said := make(chan error, 1)
	session := t.session
	t.streams.closing.Go(func() { said <- session.Wait() })
	timer := time.NewTimer(time.Second) // the exit status follows the output at once, if at all
	defer timer.Stop()
	select {
	case err := <-said:
		return err
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// snapshot asks the host for its snapshot, in the way that it understands.
func (t *talk) snapshot(ctx context.Context) (taken *snapshot.Snapshot, err error) {
	ctx, done, err := t.open(ctx, t.streams.Timeout)
	if err != nil {
		return nil, err
	}
	defer done()
	switch t.via {
	case ViaStream:
		taken, err = t.ask(ctx)
	case ViaCommands:
		taken, err = Commands{t.streams.Runner}.Snapshot(ctx, t.host)
	default:
		taken, err = readOnly(ctx, t.streams.Runner, t.host)
	}
	if err != nil && !errors.Is(err, stream.ErrRefused) {
		t.end()
	}
	return taken, err
}

// carryOut has the host carry out a report, in the way that it understands.
func (t *talk) carryOut(ctx context.Context, report enforce.Report) (Execution, error) {
	ctx, done, err := t.open(ctx, t.streams.timeFor(report))
	if err != nil {
		return Execution{}, err
	}
	defer done()
	switch t.via {
	case ViaStream:
		done, err := t.execute(ctx, report)
		if err != nil && !errors.Is(err, stream.ErrRefused) {
			t.end()
		}
		return done, err
	case ViaCommands:
		return Commands{t.streams.Runner}.Execute(ctx, t.host, report)
	default:
		return Execution{}, remote.Errorf(remote.GenvMissing, "there is no genv on %s, so it is only read", t.host.Name)
	}
}
