package inprocess

import (
	"context"
	"net"
	"sync"

	"golang.org/x/crypto/ssh"
)

// Server is the SSH server of one simulated host. Set the exported fields, and
// pass it to Start.
type Server struct {
	Name    string // the host's name in ssh_config
	Address string // that it listens on: 127.x.y.z, or ::1
	Handler Handler

	number int // its place in the fleet: part of the noise's seed
	fleet  *shared
	key    ssh.Signer

	mu       sync.Mutex
	faults   faults
	listener net.Listener // nil while the host is down
	port     int          // that it got
	counts   Counts
	life     context.Context //nolint:containedctx // of the connections that are open
	cut      context.CancelFunc
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

func (s *Server) current() faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// Cut closes the connections that are open, as a switch does that starts again. The host goes on
// accepting others.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut != nil {
		s.cut()
		s.cut = nil
	}
}

// connections is the context of the connections until the next Cut.
func (s *Server) connections() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut == nil {
		s.life, s.cut = context.WithCancel(s.fleet.ctx)
	}
	return s.life
}

// shared is what the servers of a fleet share.
type shared struct {
	key  ssh.PublicKey   // the client's
	ctx  context.Context // the fleet's life: ends every connection
	work sync.WaitGroup  // every goroutine of the fleet
}
