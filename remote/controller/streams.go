package controller

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/stream"
	"github.com/seed-3119e985/genv/snapshot"
)

// Session is a command that stays on a host. Wait returns its error after
// Stdout has ended, an *remote.Error.
type Session interface {
	io.Reader // its stdout
	io.Writer // its stdin
	io.Closer
	Wait() error
}

// Start begins a command that stays.
type Start func(ctx context.Context, host remote.Host, command remote.Command) (Session, error)

// Via is how a host is spoken with. The texts appear in JSON.
type Via string

// The ways, the best first. Which one it is, is found out when a conversation
// begins, and kept until it breaks.
const (
	ViaStream   Via = "stream"    // genv usage serve: a message a question
	ViaCommands Via = "commands"  // genv usage snapshot and execute: genv 1.4.3
	ViaReadOnly Via = "read-only" // no genv there: nvidia-smi and /proc
)

// Streams is the Link that keeps a conversation with every host, and falls back
// by itself to what the host understands.
type Streams struct {
	Start  Start
	Runner remote.Runner // for hosts without streams
	// Timeout is the deadline of a question, in place of the Runner's.
	Timeout time.Duration
	// Grace is how long a host waits for processes to end; Kill has it send
	// SIGKILL then.
	Grace time.Duration
	Kill  bool
	Log   zerolog.Logger

	mu    sync.Mutex
	talks map[string]*talk
}

// talk is what is going on with one host. Its mutex makes sure that one
// question is under way at a time.
type talk struct {
	mu       sync.Mutex
	via      Via // empty until it is found out
	session  Session
	client   *stream.Client
	revision uint64
	last     *snapshot.Snapshot // of that revision
}

func (s *Streams) talk(host remote.Host) *talk {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.talks == nil {
		s.talks = make(map[string]*talk)
	}
	t := s.talks[host.Name]
	if t == nil {
		t = &talk{}
		s.talks[host.Name] = t
	}
	return t
}

// Via says how a host is spoken with; empty while that is not known.
func (s *Streams) Via(host remote.Host) Via {
	t := s.talk(host)
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.via
}

// Close ends all conversations.
func (s *Streams) Close() {
	s.mu.Lock()
	talks := s.talks
	s.talks = nil
	s.mu.Unlock()
	for _, t := range talks {
		t.mu.Lock()
		t.end()
		t.mu.Unlock()
	}
}

// end forgets everything about the host but that it exists.
func (t *talk) end() {
	if t.session != nil {
		_ = t.session.Close() // whatever it says, it is over
	}
	t.via, t.session, t.client, t.revision, t.last = "", nil, nil, 0, nil
}

// Snapshot implements Link.
func (s *Streams) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	t := s.talk(host)
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	kept := t.via == ViaStream
	taken, err := s.snapshot(ctx, t, host)
	if err != nil && kept && remote.ClassOf(err) == remote.OutcomeUnknown && ctx.Err() == nil {
		// The conversation was from an earlier cycle and had ended since. A
		// question for a snapshot changes nothing, so it may be put again.
		taken, err = s.snapshot(ctx, t, host)
	}
	if err != nil && remote.ClassOf(err) == remote.OutcomeUnknown {
		err = &remote.Error{Class: remote.Unreachable, Err: err} // nothing was to be done, so nothing is unknown
	}
	return taken, err
}

func (s *Streams) snapshot(ctx context.Context, t *talk, host remote.Host) (*snapshot.Snapshot, error) {
	if err := s.begin(ctx, t, host); err != nil {
		return nil, err
	}
	var taken *snapshot.Snapshot
	var err error
	switch t.via {
	case ViaStream:
		taken, err = t.ask(ctx)
	case ViaCommands:
		taken, err = Commands{s.Runner}.Snapshot(ctx, host)
	default:
		taken, err = readOnly(ctx, s.Runner, host)
	}
	if err != nil && !errors.Is(err, stream.ErrRefused) {
		t.end()
	}
	return taken, err
}

// Execute implements Link.
func (s *Streams) Execute(ctx context.Context, host remote.Host, report enforce.Report) (Execution, error) {
	t := s.talk(host)
	t.mu.Lock()
	defer t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.Timeout+s.Grace)
	defer cancel()
	if err := s.begin(ctx, t, host); err != nil {
		return Execution{}, err
	}
	switch t.via {
	case ViaStream:
		done, err := t.execute(ctx, report, s.Grace, s.Kill)
		if err != nil && !errors.Is(err, stream.ErrRefused) {
			t.end()
		}
		return done, err
	case ViaCommands:
		return Commands{s.Runner}.Execute(ctx, host, report)
	default:
		return Execution{}, remote.Errorf(remote.GenvMissing, "there is no genv on %s, so it is only read", host.Name)
	}
}

// begin finds out how the host can be spoken with, and begins.
func (s *Streams) begin(ctx context.Context, t *talk, host remote.Host) error {
	if t.via != "" {
		return nil
	}
	err := s.open(ctx, t, host)
	switch class := remote.ClassOf(err); {
	case err == nil:
		t.via = ViaStream
	case class == remote.CommandFailed:
		t.via = ViaCommands // 1.4.3 exits with 2 on a word that it does not know
	case class == remote.GenvMissing:
		t.via = ViaReadOnly
	default:
		return err
	}
	s.Log.Debug().Str("host", host.Name).Str("via", string(t.via)).AnErr("because", err).Msg("speaking with the host")
	return nil
}

// open starts `genv usage serve` and reads its greeting.
func (s *Streams) open(ctx context.Context, t *talk, host remote.Host) error {
	token := rand.Text()
	session, err := s.Start(ctx, host, host.Genv("usage", "serve", "--token", token))
	if err != nil {
		return err
	}
	client, err := stream.Open(ctx, session, session, session, token)
	if err == nil {
		t.session, t.client = session, client
		return nil
	}
	defer session.Close()
	switch {
	case ctx.Err() != nil:
		return remote.Errorf(remote.Timeout, "no greeting from genv: %w", err)
	case errors.Is(err, stream.ErrVersion):
		return &remote.Error{Class: remote.Version, Err: err}
	case errors.Is(err, stream.ErrNoGreeting) && errors.Is(err, io.EOF):
		if ended := session.Wait(); ended != nil {
			return ended
		}
	}
	return &remote.Error{Class: remote.InvalidOutput, Err: err}
}
