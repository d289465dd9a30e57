package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
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

// line is how a host is spoken with, and for a stream the conversation.
type line struct {
	via     Via
	since   time.Time
	waiting *sync.WaitGroup // for what goes on behind a caller's back

	session  Session
	client   *Stream
	revision uint64
	last     *snapshot.Snapshot // of that revision
}

// fallbackFor is for how long a host without streams is taken for one: it may
// have been given another genv since.
const fallbackFor = time.Hour

func (l *line) stale() bool { return l.via != ViaStream && time.Since(l.since) > fallbackFor }

func (l *line) close() {
	if l != nil && l.session != nil {
		_ = l.session.Close() // whatever it says, it is over
	}
}

// attempt is a line in the making.
type attempt struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when what follows is set
	line   *line
	err    error
	until  time.Time // the deadline of the attempt, and of the first question after it
}

// begin begins an attempt, after a pause. To a host that was lost, a question is
// put as well, and its answer thrown away: one that greets and then hangs, over
// a sick GPU, say, does not come back into the cycles.
func (s *Pool) begin(host remote.Host, pause time.Duration, lost bool) *attempt {
	ctx, cancel := context.WithCancel(context.Background())
	a := &attempt{cancel: cancel, done: make(chan struct{})}
	s.closing.Go(func() {
		defer close(a.done)
		defer cancel()
		if a.err = rest(ctx, pause); a.err != nil {
			return
		}
		leave, err := s.enter(ctx)
		if err != nil {
			a.err = err
			return
		}
		defer leave()
		a.until = time.Now().Add(s.Timeout)
		limited, cancel := context.WithDeadline(ctx, a.until)
		defer cancel()
		a.line, a.err = s.reach(limited, host)
		if remote.ClassOf(a.err) == remote.InvalidOutput && s.Forget != nil {
			s.Forget(host) // whatever is wrong may be so on this connection alone
		}
		if a.err != nil || !lost {
			return
		}
		if _, a.err = a.line.snapshot(limited, host, s.Runner); a.err != nil {
			s.drop(a.line, host)
			a.line = nil
		}
	})
	return a
}

// rest waits; its error says that ctx ended first.
func rest(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return remote.Errorf(remote.Cancelled, "stopped before it was tried again: %w", context.Cause(ctx))
	}
}

// drop ends a line, and with it the connection to its host: whatever is wrong
// with it, the next one starts again.
func (s *Pool) drop(l *line, host remote.Host) {
	s.closing.Go(func() { // a frozen host takes its time to agree, and nobody waits for it here
		if s.Forget != nil {
			s.Forget(host)
		}
		l.close()
	})
}

// snapshot asks the host for its snapshot, in the way that it understands.
func (l *line) snapshot(ctx context.Context, host remote.Host, runner remote.Runner) (*snapshot.Snapshot, error) {
	switch l.via {
	case ViaStream:
		return l.ask(ctx)
	case ViaCommands:
		return Commands{runner}.Snapshot(ctx, host)
	default:
		return readOnly(ctx, runner, host)
	}
}

// reach finds out how the host can be spoken with.
func (s *Pool) reach(ctx context.Context, host remote.Host) (*line, error) {
	l := &line{waiting: &s.closing}
	err := remote.Diagnose(ctx, s.Runner, host, l.greet(ctx, s.Start, host))
	switch class := remote.ClassOf(err); {
	case err == nil:
		l.via = ViaStream
	case class == remote.CommandFailed && knowsNoServe(err):
		l.via = ViaCommands
	case class == remote.GenvMissing:
		l.via = ViaReadOnly
	default:
		return nil, err
	}
	l.since = time.Now()
	event := s.Log.Info()
	if l.via == ViaReadOnly {
		event = s.Log.Warn()
	}
	event.Str("host", host.Name).Str("via", string(l.via)).AnErr("because", err).Msg(sayings[l.via])
	return l, nil
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
func (l *line) greet(ctx context.Context, start Start, host remote.Host) error {
	token := rand.Text()
	session, err := untilNotBusy(ctx, func() (Session, error) {
		return start(ctx, host, host.Genv("usage", "serve", "--token", token))
	})
	if err != nil {
		return err
	}
	l.session = session
	l.client, err = OpenStream(ctx, session, session, token)
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrNoGreeting) && errors.Is(err, io.EOF) {
		if ended := l.verdict(ctx); ended != nil {
			err = ended
		}
	}
	l.waiting.Go(func() { _ = session.Close() }) // whatever it says, it is over
	l.session, l.client = nil, nil
	return classify(ctx, err)
}

// verdict is the session's own word on why its output ended, nil when it has
// none.
func (l *line) verdict(ctx context.Context) error {
	said := make(chan error, 1)
	session := l.session
	l.waiting.Go(func() { said <- session.Wait() })
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
