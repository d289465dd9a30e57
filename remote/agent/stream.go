package agent

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/frame"
)

var (
	// ErrNotSent is wrapped if nothing of a request was sent. So the host does nothing.
	ErrNotSent = errors.New("not sent")
	// ErrEnded is wrapped if the other end closed the connection, between two messages or before it read a whole one.
	ErrEnded   = errors.New("the connection ended")
	errNotRead = errors.New("the host did not read a request")
)

// Stream is the controller's end of `genv usage serve`. It is safe for concurrent use. After an error that wraps
// neither ErrRefused nor ErrNotSent all calls fail, and the caller closes the session.
type Stream struct {
	Greeting frame.Greeting
	// WriteTimeout is how long the host may take to read a request, set before the first Call; 0 for no limit.
	WriteTimeout time.Duration

	out     io.Writer
	writing slots // taken while a request is written

	mu     sync.Mutex
	last   uint64
	calls  map[uint64]chan<- *frame.Frame // under way, each with room for one answer; nil to drop the answer
	late   uint64                         // the last call of mayBeLate that was not answered in time
	broken error                          // set once, before the channels of calls are closed
	onEnd  func(why error)
}

// OpenStream reads the greeting. The error wraps frame.ErrNoGreeting, frame.ErrVersion or frame.ErrProtocol, or is the
// cause of ctx's end. A goroutine reads from in until the caller closes the session, even after an error.
func OpenStream(ctx context.Context, in io.Reader, out io.Writer, token string) (*Stream, error) {
	buffered := bufio.NewReaderSize(in, 512) // one for each host; larger frames are read past it
	greeting, err := within(ctx, func() (frame.Greeting, error) { return frame.ReadGreeting(buffered, token) })
	if err != nil {
		return nil, err
	}
	s := &Stream{Greeting: greeting, out: out, writing: newSlots(1), calls: make(map[uint64]chan<- *frame.Frame)}
	go s.read(buffered)
	return s, nil
}

// Call makes a request. If ctx's deadline passes, the host hangs, which breaks the stream. If ctx is cancelled, or the
// call mayBeLate, only the answer is dropped. But the stream breaks if the last late call hasn't been answered either,
// or if a snapshot is more than maxLate late.
func (s *Stream) Call(ctx context.Context, name string, body []byte) ([]byte, error) {
	f, answer := &frame.Frame{Kind: frame.KindRequest, Name: name, Body: body}, make(chan *frame.Frame, 1)
	if err := s.begin(ctx, f, answer); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotSent, err)
	}
	select {
	case r, ok := <-answer:
		switch {
		case !ok:
			return nil, s.broken
		case r.Kind == frame.KindRefusal:
			return nil, refusalOf(r.Body)
		}
		return r.Body, nil
	case <-ctx.Done():
	}
	missed := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
	if missed && !mayBeLate(f.Name) || !s.abandon(f.ID, missed) {
		s.fail(context.Cause(ctx))
		return nil, context.Cause(ctx)
	}
	if missed && f.Name == RequestSnapshot {
		time.AfterFunc(maxLate, func() { s.failWithout(f.ID) })
	}
	return nil, fmt.Errorf("%w: %w", errAbandoned, context.Cause(ctx))
}

// mayBeLate reports whether a stream survives a late answer: to a message or an order for a guard, since other orders
// may be under way, and to a snapshot, since a slow host keeps nvidia-smi's answer for the next one.
func mayBeLate(name string) bool {
	return name == RequestNotify || name == RequestGuard || name == RequestSnapshot
}

// maxLate is how late a snapshot may be: a host that was frozen and has lost its connections must be back soon.
const maxLate = 3 * time.Second

var errAbandoned = errors.New("the answer is not waited for")

// begin gives a request its id and writes it, one at a time, so that ids ascend on the wire. After an error nothing was
// sent; else answer gets one frame, or is closed.
func (s *Stream) begin(ctx context.Context, f *frame.Frame, answer chan<- *frame.Frame) error {
	if err := f.Check(); err != nil {
		return err
	}
	if err := s.writing.acquire(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(context.Cause(ctx), s.broken, remote.MayBegin(ctx)); err != nil {
		s.writing.release()
		return err
	}
	s.last++
	f.ID = s.last
	s.calls[f.ID] = answer
	go func() {
		defer s.writing.release()
		if s.WriteTimeout > 0 {
			late := time.AfterFunc(s.WriteTimeout,
				func() { s.fail(fmt.Errorf("%w within %s", errNotRead, s.WriteTimeout)) })
			defer late.Stop()
		}
		if _, err := s.out.Write(f.Append(nil)); err != nil {
			s.fail(fmt.Errorf("%w: send the request: %w", ErrEnded, err))
		}
	}()
	return nil
}

// abandon drops the answer to a call. It returns false if the call and another one are late.
func (s *Stream) abandon(id uint64, late bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, missing := s.calls[s.late]; late && missing {
		return false
	}
	if late {
		s.late = id
	}
	if _, underWay := s.calls[id]; underWay {
		s.calls[id] = nil
	}
	return true
}

func (s *Stream) failWithout(id uint64) {
	s.mu.Lock()
	_, missing := s.calls[id]
	s.mu.Unlock()
	if missing {
		s.fail(context.DeadlineExceeded)
	}
}

func (s *Stream) fail(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return
	}
	s.broken = why
	for _, answer := range s.calls {
		if answer != nil {
			close(answer)
		}
	}
	s.calls = nil
	if s.onEnd != nil {
		go s.onEnd(why)
	}
}

// whenEnded has f called in a goroutine, once, when the stream is or becomes broken.
func (s *Stream) whenEnded(f func(why error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		go f(s.broken)
		return
	}
	s.onEnd = f
}

func (s *Stream) read(in io.Reader) {
	for {
		f, err := frame.Read(in)
		switch {
		case errors.Is(err, frame.ErrProtocol):
			err = fmt.Errorf("read the answer: %w", err)
		case err != nil:
			err = fmt.Errorf("%w: read the answer: %w", ErrEnded, err)
		default:
			err = s.deliver(f)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *Stream) deliver(f *frame.Frame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, underWay := s.calls[f.ID]
	switch {
	case s.broken != nil:
		return s.broken
	case !underWay:
		return fmt.Errorf("%w: an answer to request %d, which is not under way", frame.ErrProtocol, f.ID)
	case f.Kind != frame.KindAnswer && f.Kind != frame.KindRefusal:
		return fmt.Errorf("%w: a frame of the kind %q for an answer", frame.ErrProtocol, f.Kind)
	}
	delete(s.calls, f.ID)
	if answer != nil {
		answer <- f
	}
	return nil
}

// within waits for work or the end of ctx. After that the work continues until the session is closed, and its result is
// dropped.
func within[T any](ctx context.Context, work func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := work()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, context.Cause(ctx)
	}
}
