// Package service is the socket of root's service on GPU hosts where root owns the state: see docs/host.md. People's
// commands ask it for changes (package change decides who may) and for root's view of the devices.
//
//	server := &service.Server{Backend: backend, …}
//	err := server.Serve(ctx, listener)               // as root
//	result, err := service.Client{Path: path}.Change(ctx, c)
//
// The kernel reports who asks; the request's word doesn't count. One user can't delay others: connections and requests
// of each user are bounded, and users take turns at the state files.
package service

import (
	"cmp"
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
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/quota"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// Backend is the host that the service serves, safe for concurrent use.
type Backend interface {
	// Change is Changer.Change. It holds a turn while it holds the lock of the state files.
	Change(ctx context.Context, c change.Change, by change.Requester,
		turn func(context.Context) (release func(), err error)) (change.Result, error)
	// Snapshot returns root's view of the host, at most a second old.
	Snapshot(ctx context.Context) (*snapshot.Snapshot, error)
	// Look returns a named document of root's view, as by may see it.
	Look(ctx context.Context, name string, by Viewer) (json.RawMessage, error)
}

// Viewer is who looks, as reported by the kernel. NoUID is unknown.
type Viewer struct {
	UID    snapshot.UID
	Groups []uint32
}

// Server answers requests. Backend, Now and Username are required.
type Server struct {
	Backend  Backend
	Bounds   Bounds
	Proc     proc.FS
	Genv     string // the version, for Status
	Now      func() time.Time
	Username func(context.Context, snapshot.UID) snapshot.Username
	// Lacks says that a uid certainly has no account, and so gets no environment; nil: not checked.
	Lacks        func(context.Context, snapshot.UID) bool
	Reservations *Reservations // nil for none
	Run          string        // root's run folder, for notes on waits and askers; empty: no notes
	Failed       func(error)   // gets errors that no client sees; may be nil

	admission       admission
	turns           quota.Turns[snapshot.UID]
	tokens          grant.Tokens
	waits           waits
	allowing        sync.Mutex
	allowed         atomic.Pointer[allowanceState] // what the policy allows; nil if not told yet
	asking          sync.Mutex
	askers          []asker // oldest first
	asked           uint64  // Number of the last Asked
	since           time.Time
	served, refused atomic.Uint64
	users           sync.WaitGroup // of connections
}

const (
	takeWithin   = 5 * time.Second  // for a client to read the answer
	changeWithin = 40 * time.Second // for a change, including nvidia-smi
	queue        = 128              // backlog of the socket
)

// Serve answers requests until ctx ends, finishes those that arrived, and closes the listener.
func (s *Server) Serve(ctx context.Context, listener *net.UnixListener) error {
	bounds := s.Bounds.withDefaults()
	s.since = s.Now()
	s.admission = admission{bounds: bounds, now: s.Now, users: map[snapshot.UID]*requestCredit{}}
	s.turns.Most = bounds.PerUser
	s.tokens.Now = s.Now
	if err := keepQueueShort(listener); err != nil {
		return err
	}
	s.loadWaits()
	s.users.Go(func() { s.serveWaits(ctx) })
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
		case err != nil: // out of file descriptors; retried
			s.failed(err)
			time.Sleep(50 * time.Millisecond)
		default:
			s.accept(ctx, conn)
		}
	}
}

// keepQueueShort makes clients wait for a turn to connect, not behind thousands of connections of one user.
func keepQueueShort(listener *net.UnixListener) error {
	raw, err := listener.SyscallConn()
	if err != nil {
		return err
	}
	var listenErr error
	err = raw.Control(func(fd uintptr) { listenErr = unix.Listen(int(fd), queue) })
	return errors.Join(err, listenErr)
}

func (s *Server) failed(err error) {
	if s.Failed != nil {
		s.Failed(err)
	}
}

// failedOnce reports an error unless it repeats last. nil resets last.
func (s *Server) failedOnce(last *string, err error) {
	before := *last
	if *last = ""; err != nil {
		*last = err.Error()
	}
	if *last != before && err != nil {
		s.failed(err)
	}
}

// accept never blocks: it only needs the uid, and a refusal fits into the socket's buffer.
func (s *Server) accept(ctx context.Context, conn *net.UnixConn) {
	begun := proc.StartTimeNow()
	by, raw, err := credentialsOf(conn)
	if err != nil {
		s.failed(err)
		_ = conn.Close()
		return
	}
	// Until the account is known, the request counts for the range of the uid.
	by.account, _ = s.Proc.Account(by.uid)
	release, ok := s.admission.admit(by.account)
	if !ok {
		s.refuse(conn, tooMany(by.account))
		return
	}
	s.users.Go(func() {
		by.identify(raw, s.Proc, begun)
		if owner, _ := s.Proc.Account(by.owner); owner != by.account { // of its user namespace
			release()
			if release, ok = s.admission.admit(owner); !ok {
				s.refuse(conn, tooMany(owner))
				return
			}
		}
		defer release()
		if errors.Is(by.unknown, errPeerGone) { // it is unknown who sent the request
			s.refuse(conn, errPeerGone)
			return
		}
		defer conn.Close()
		by.account = s.Proc.AllAccounts().Resolve(context.WithoutCancel(ctx), by.owner)
		s.converse(ctx, conn, by, release)
	})
}

func (s *Server) refuse(conn net.Conn, why error) {
	s.refused.Add(1)
	_ = s.say(conn, failure(why), time.Second) // the client may be gone
	_ = conn.Close()
}

// Listen opens a socket for all users. No other service may run.
func Listen(path string) (*net.UnixListener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
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

// Bounds of requests. Zero fields have defaults.
type Bounds struct {
	Connections int           // of all users
	PerUser     int           // connections of one user, and queued requests
	Rate        float64       // a user's requests per second, long-term
	Burst       int           // a user's requests at once
	Send        time.Duration // for the request to arrive
}

func (b Bounds) withDefaults() Bounds {
	return Bounds{
		Connections: cmp.Or(b.Connections, 1024), PerUser: cmp.Or(b.PerUser, 16),
		Rate: cmp.Or(b.Rate, 20), Burst: cmp.Or(b.Burst, 100), Send: cmp.Or(b.Send, 5*time.Second),
	}
}

func tooMany(uid snapshot.UID) error { return fmt.Errorf("%w from uid %d, try again", ErrBusy, uid) }

type admission struct {
	bounds Bounds
	now    func() time.Time

	mu    sync.Mutex
	total int
	users map[snapshot.UID]*requestCredit
}

type requestCredit struct {
	connections int
	credit      float64 // requests left at that time
	at          time.Time
}

// admit counts a connection until release, unless the user has too many.
func (a *admission) admit(uid snapshot.UID) (release func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.now()
	u := a.users[uid]
	if u == nil {
		a.forget(now)
		u = &requestCredit{credit: float64(a.bounds.Burst), at: now}
	}
	u.credit = min(u.credit+max(now.Sub(u.at), 0).Seconds()*a.bounds.Rate, float64(a.bounds.Burst))
	u.at = now
	if a.total >= a.bounds.Connections || u.connections >= a.bounds.PerUser || u.credit < 1 {
		return nil, false
	}
	a.users[uid] = u
	u.credit--
	u.connections++
	a.total++
	return sync.OnceFunc(func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		u.connections--
		a.total--
	}), true
}

const maxIdle = 1024

func (a *admission) forget(now time.Time) {
	if len(a.users) < maxIdle {
		return
	}
	full := time.Duration(float64(a.bounds.Burst) / a.bounds.Rate * float64(time.Second))
	for uid, u := range a.users {
		if u.connections == 0 && now.Sub(u.at) > full {
			delete(a.users, uid)
		}
	}
}

func (a *admission) connections() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total
}
