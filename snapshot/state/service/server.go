package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// Backend is the host that the service serves. Its methods are called by many goroutines.
type Backend interface {
	// Change makes a change for an asker, as changer.Changer does. It takes the turn
	// before it takes the lock of the state files, and releases it then.
	Change(ctx context.Context, c change.Change, by change.Asker, turn Turn) (change.Result, error)
	// Look returns a document of root's view of the host, by its name.
	Look(ctx context.Context, name string) (json.RawMessage, error)
}

// Turn waits for the turn of a user at the state files.
type Turn func(context.Context) (release func(), err error)

// Server answers requests. Backend, Now and Username are required.
type Server struct {
	Backend  Backend
	Bounds   Bounds
	Proc     proc.FS
	Genv     string // the version, for Status
	Now      func() time.Time
	Username func(context.Context, snapshot.UID) snapshot.Username
	// Failed is called with errors that no client sees; nil ignores them.
	Failed func(error)

	admission admission
	turns     turns
	since     time.Time
	served    atomic.Uint64
	refused   atomic.Uint64
	users     sync.WaitGroup // of connections
}

// How long a client may take for the answer, and how long a change may take, with
// nvidia-smi.
const (
	takeWithin   = 5 * time.Second
	changeWithin = 40 * time.Second
)

// Serve answers requests on a listener until ctx ends, and then what has come so far. It
// closes the listener.
func (s *Server) Serve(ctx context.Context, listener *net.UnixListener) error {
	bounds := s.Bounds.withDefaults()
	s.since = s.Now()
	s.admission = admission{bounds: bounds, now: s.Now}
	s.turns.perUser = bounds.PerUser
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	defer s.users.Wait()
	defer listener.Close()
	for {
		conn, err := listener.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // no file descriptors left: they come back
			s.failed(err)
			time.Sleep(50 * time.Millisecond)
		default:
			s.accept(ctx, conn)
		}
	}
}

func (s *Server) failed(err error) {
	if s.Failed != nil {
		s.Failed(err)
	}
}

// accept never waits for the client: what is refused is said into the empty buffer of the
// connection.
func (s *Server) accept(ctx context.Context, conn *net.UnixConn) {
	begun := startTime()
	raw, err := conn.SyscallConn()
	var by peer
	if err == nil {
		by, err = credentialsOf(raw)
	}
	if err != nil {
		s.failed(err)
		_ = conn.Close()
		return
	}
	if !s.admission.mayAdmit(by.uid) { // a look at the process would cost more than the answer
		s.refuse(conn, refused{by.uid})
		return
	}
	by.identify(raw, s.Proc, begun)
	if errors.Is(by.unknown, errPeerGone) { // it is unknown which user's requests these are
		s.refuse(conn, errPeerGone)
		return
	}
	release, ok := s.admission.admit(by.account)
	if !ok {
		s.refuse(conn, refused{by.account})
		return
	}
	s.users.Go(func() {
		defer release()
		defer conn.Close()
		s.converse(context.WithoutCancel(ctx), conn, by)
	})
}

func (s *Server) refuse(conn net.Conn, why error) {
	s.refused.Add(1)
	answer := failure(why)
	answer.Version = Version
	_ = conn.SetWriteDeadline(time.Now().Add(time.Millisecond))
	_ = writeLine(conn, answer) // or the client is gone
	_ = conn.Close()
}

// converse reads the request, and answers it.
func (s *Server) converse(ctx context.Context, conn *net.UnixConn, by peer) {
	_ = conn.SetReadDeadline(time.Now().Add(s.admission.bounds.Send))
	line, err := readLine(conn, MaxRequest)
	var answer Answer
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		answer = failure(fmt.Errorf("%w: it didn't come within %s", state.ErrRequest, s.admission.bounds.Send))
	case errors.Is(err, errTooLong):
		answer = failure(fmt.Errorf("%w: it is longer than %d bytes", state.ErrRequest, MaxRequest))
	case err != nil: // the client is gone
		return
	default:
		ctx, cancel := untilClosed(ctx, conn)
		answer = s.answer(ctx, line, by)
		cancel()
	}
	s.served.Add(1)
	if answer.Busy {
		s.refused.Add(1)
	}
	answer.Version = Version
	_ = conn.SetWriteDeadline(time.Now().Add(takeWithin))
	_ = writeLine(conn, answer) // a client that is gone looks for itself
}

// untilClosed ends the context when the client closes the connection: it has ended, and
// what it asked for isn't begun any more.
func untilClosed(ctx context.Context, conn *net.UnixConn) (context.Context, func()) {
	ctx, cancel := context.WithTimeout(ctx, changeWithin)
	done := make(chan struct{})
	_ = conn.SetReadDeadline(time.Time{})
	go func() {
		defer close(done)
		if n, err := conn.Read(make([]byte, 1)); n == 0 && !errors.Is(err, os.ErrDeadlineExceeded) {
			cancel()
		}
	}()
	return ctx, func() {
		_ = conn.SetReadDeadline(time.Unix(1, 0)) // ends the reading
		<-done
		cancel()
	}
}

func failure(err error) Answer {
	var tooMany refused
	return Answer{Error: change.EncodeError(err), Busy: errors.As(err, &tooMany)}
}

func (s *Server) answer(ctx context.Context, line []byte, by peer) Answer {
	r, err := decodeRequest(line)
	if err != nil {
		return failure(err)
	}
	switch {
	case r.Status:
		return Answer{Status: &Status{
			PID: os.Getpid(), Genv: s.Genv, Since: s.since.UTC(), Connections: s.admission.connections(),
			Served: s.served.Load(), Refused: s.refused.Load(),
		}}
	case r.Look != "":
		document, err := s.Backend.Look(ctx, r.Look)
		if err != nil {
			return failure(err)
		}
		return Answer{Document: document}
	}
	result, err := s.change(ctx, r.Change, by)
	if err != nil {
		return failure(err)
	}
	return Answer{Result: &result}
}

// change makes a change for a client. A process that was registered and has ended meanwhile
// is removed again, since its PID may be that of another process.
func (s *Server) change(ctx context.Context, data []byte, by peer) (change.Result, error) {
	asked, err := change.Decode(data)
	if err != nil {
		return change.Result{}, err
	}
	named := &processes{fs: s.Proc, by: by, held: map[snapshot.PID]*proc.Handle{}}
	defer named.close()
	asker := change.Asker{
		UID: by.uid, Now: snapshot.DateOf(s.Now()), Owner: named.owner,
		Username: func(uid snapshot.UID) snapshot.Username { return s.Username(ctx, uid) },
	}
	if by.unknown == nil {
		asker.PID = by.pid
	}
	if asked.Leave != nil && asked.Leave.PID != 0 && by.unknown != nil {
		return change.Result{}, by.unknown
	}
	turn := func(ctx context.Context) (func(), error) { return s.turns.take(ctx, by.account) }
	result, err := s.Backend.Change(ctx, asked, asker, turn)
	if gone := named.gone(); err == nil && asked.Enter != nil && gone != 0 {
		forget := change.Change{Leave: &change.Leave{PID: gone}}
		_, _ = s.Backend.Change(ctx, forget, change.Asker{Now: asker.Now}, turn) // what fails is cleaned up later
		return change.Result{}, fmt.Errorf("process %d: %w", gone, proc.ErrGone)
	}
	return result, err
}

// Listen opens the socket at a path, on which every user may connect. A socket that a
// service left is replaced: the caller makes sure that no other service runs.
func Listen(path string) (*net.UnixListener, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err == nil && st.Mode&unix.S_IFMT == unix.S_IFSOCK {
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil {
		_ = listener.Close()
		return nil, err
	}
	return listener, nil
}
