package inprocess

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// Server is the SSH server of one simulated host. Set the exported fields, and
// pass it to Start.
type Server struct {
	Name    string // the host's name in ssh_config
	Address string // that it listens on: 127.x.y.z, or ::1
	Handler Handler

	number int // its place in the fleet: part of the noise's seed
	fleet  *Fleet
	key    ssh.Signer

	mu       sync.Mutex
	faults   faults
	listener net.Listener // nil while the host is down
	counts   Counts
}

// Counts are what happened on a host since it started.
type Counts struct {
	Connections int // accepted TCP connections
	Logins      int // of these, how many authenticated
	Commands    int // exec requests that were accepted
}

// Counts returns what happened so far.
func (s *Server) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

func (s *Server) count(add func(*Counts)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.counts)
}

// Inject makes the host fail in the given ways, in place of those before; with
// none it is healthy again. Open connections and running commands keep the faults
// with which they began. The error is one of listening again after Down.
func (s *Server) Inject(faults ...Fault) error {
	f := healthy()
	for _, fault := range faults {
		fault(&f)
	}
	s.mu.Lock()
	s.faults = f
	s.mu.Unlock()
	if f.down {
		s.stopListening()
		return nil
	}
	return s.listen(s.fleet.Port)
}

func (s *Server) current() faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// listen opens the listener, unless it is open.
func (s *Server) listen(port int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil || s.fleet.ctx.Err() != nil {
		return nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(s.Address, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: %s port %d: end the program that listens there, or choose another port", ErrPortInUse, s.Address, port)
	}
	if err != nil {
		return fmt.Errorf("host %s: %w", s.Name, err)
	}
	s.listener = listener
	s.fleet.work.Go(func() { s.accept(listener) })
	return nil
}

func (s *Server) stopListening() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		_ = s.listener.Close() // nothing is lost with a listener
		s.listener = nil
	}
}

// port is the port that the listener got.
func (s *Server) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

func (s *Server) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor is free, or the client was gone before
			pause(s.fleet.ctx, 10*time.Millisecond)
			continue
		}
		s.count(func(c *Counts) { c.Connections++ })
		s.fleet.work.Go(func() { s.serve(conn) })
	}
}
