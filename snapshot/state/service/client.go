package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

var (
	// ErrNotRunning means that nothing was done: the service can't be reached.
	ErrNotRunning = errors.New("the service that owns the state of this host is not running: have root start it " +
		"(systemctl start genv-host)")
	// ErrUnknown means that no answer came to a request: it may or may not be done.
	ErrUnknown = errors.New("the service gave no answer, so it is unknown whether this was done: `genv " +
		"status` shows it")
	// ErrBusy means that nothing was done: the user has too many pending requests.
	ErrBusy = errors.New("too many requests")
)

// Client asks the service of this host.
type Client struct {
	Path  string        // of the socket
	Retry time.Duration // how long to retry on ErrBusy; 0 is 10 s
}

const answerWithin = changeWithin + 10*time.Second // longer than a change may take

// Change asks for a change. Errors are those above and of change.DecodeError.
func (c Client) Change(ctx context.Context, asked change.Change) (change.Result, error) {
	answer, err := c.ask(ctx, Request{Change: &asked})
	return given(answer.Result, err)
}

func given[T any](value *T, err error) (T, error) {
	if err == nil && value == nil {
		err = ErrUnknown
	}
	if err != nil {
		return *new(T), err
	}
	return *value, nil
}

// Look returns a named document of root's view: see Backend.
func (c Client) Look(ctx context.Context, name string) (json.RawMessage, error) {
	answer, err := c.ask(ctx, Request{Look: name})
	return answer.Document, err
}

const statusWithin = 10 * time.Second // systemd accepts connections before the service serves

// Status asks the service about itself.
func (c Client) Status(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusWithin)
	defer cancel()
	answer, err := c.ask(ctx, Request{Status: true})
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errors.New("the service doesn't answer: `systemctl status genv-host` says what it waits for")
	}
	return given(answer.Status, err)
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

func (c Client) ask(ctx context.Context, r Request) (Answer, error) {
	retry := cmp.Or(c.Retry, 10*time.Second)
	r.Version = Version
	for begun := time.Now(); ; {
		answer, err := c.askOnce(ctx, r, answerWithin, func(*QueuePlace) {})
		if !errors.Is(err, ErrBusy) || time.Since(begun) > retry ||
			!pause(ctx, 20*time.Millisecond+rand.N(200*time.Millisecond)) { // jitter
			return answer, err
		}
	}
}

func (c Client) open(ctx context.Context) (*net.UnixConn, error) {
	conn, err := c.connect(ctx)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return nil, ErrNotRunning
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNotRunning, err)
	}
	if err := checkService(conn); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// askOnce sends a request, and passes each QueuePlace before the answer to tell. within = 0: no limit.
func (c Client) askOnce(
	ctx context.Context, r Request, within time.Duration, tell func(*QueuePlace),
) (answer Answer, err error) {
	conn, err := c.open(ctx)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	from := io.Reader(conn)
	if within > 0 {
		_ = conn.SetDeadline(time.Now().Add(within))
		from = io.LimitReader(conn, maxAnswer)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	sent := writeLine(conn, r)
	for answers := json.NewDecoder(from); ; tell(answer.Waiting) { // a refusal can come before all was sent
		answer = Answer{}
		err := answers.Decode(&answer)
		_, broken := errors.AsType[net.Error](err)
		switch {
		case err == nil && answer.Waiting != nil:
		case err == nil:
			return answer, answer.err()
		case sent != nil:
			return answer, fmt.Errorf("%w: the request was not sent: %w", ErrNotRunning, sent)
		case broken || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return answer, errors.Join(ErrUnknown, text.Late(ctx.Err(), 0))
		default:
			return answer, fmt.Errorf("%w: its answer is not understood", ErrUnknown)
		}
	}
}

func (a *Answer) err() error {
	switch {
	case a.Busy:
		return fmt.Errorf("%w: %w", ErrBusy, change.DecodeError(a.Error))
	case a.Error != nil:
		return change.DecodeError(a.Error)
	}
	return nil
}

const (
	connectWithin = 10 * time.Second       // for a place in the socket's backlog
	connectFor    = 200 * time.Millisecond // between checks of ctx
)

// connect waits in the kernel's backlog. net.Dialer doesn't, so that clients that retry in a loop would win.
func (c Client) connect(ctx context.Context) (*net.UnixConn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), c.Path)
	defer file.Close()
	timeout := unix.NsecToTimeval(connectFor.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return nil, err
	}
	for begun := time.Now(); ; {
		err := unix.Connect(fd, &unix.SockaddrUnix{Name: c.Path})
		switch {
		case err == nil:
			conn, err := net.FileConn(file)
			if err != nil {
				return nil, err
			}
			return conn.(*net.UnixConn), nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) || time.Since(begun) > connectWithin:
			return nil, &os.PathError{Op: "connect", Path: c.Path, Err: err}
		}
	}
}

// checkService refuses a listener of another user than root or, on a simulated host, the caller.
func checkService(conn *net.UnixConn) error {
	server, _, err := credentialsOf(conn)
	if err != nil {
		return err
	}
	if server.uid == grant.Nobody && proc.InUserNamespace() { // root, seen from a user namespace
		return nil
	}
	if server.uid != 0 && int(server.uid) != os.Geteuid() {
		return fmt.Errorf("%w: uid %d listens on its socket, which is not root", ErrNotRunning, server.uid)
	}
	return nil
}

// Wait queues on this host and returns the change's result. tell gets each new place, and nil while the service is
// down, which keeps the place. Errors are those of Client.Change, or ctx's cause.
func (c Client) Wait(ctx context.Context, r WaitRequest, tell func(*QueuePlace)) (change.Result, error) {
	for queued := false; ; {
		answer, err := c.askOnce(ctx, Request{Version: Version, Wait: &r}, 0, func(p *QueuePlace) {
			queued = true
			tell(p)
		})
		switch {
		case ctx.Err() != nil:
			return change.Result{}, context.Cause(ctx)
		case errors.Is(err, ErrBusy):
		case !queued, !errors.Is(err, ErrNotRunning) && !errors.Is(err, ErrUnknown):
			return given(answer.Result, err)
		default:
			tell(nil)
		}
		pause(ctx, 200*time.Millisecond+rand.N(300*time.Millisecond))
	}
}

// Withdraw returns the offer of this user's wait.
func (c Client) Withdraw(ctx context.Context, id string) error {
	_, err := c.ask(ctx, Request{Withdraw: id})
	return err
}
