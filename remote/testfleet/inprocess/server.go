package inprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
)

// Server is the SSH server of one simulated host. Set the exported fields, and pass it to Start.
type Server struct {
	Name    string // the host's name in ssh_config
	Address string // that it listens on: 127.x.y.z, or ::1
	Handler Handler

	number int // its place in the fleet: part of the noise's seed
	fleet  *shared
	key    ssh.Signer

	mu       sync.Mutex
	faults   Faults
	listener net.Listener // nil while the host is down
	port     int          // that it got
	counts   Totals
	life     context.Context //nolint:containedctx // of the connections that are open
	cut      context.CancelFunc
}

// Totals are what happened on a host since it started.
type Totals struct {
	Connections int // accepted TCP connections
	Logins      int // of these, how many authenticated
	Commands    int // exec requests that were accepted
}

// Counts returns what happened so far.
func (s *Server) Counts() Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

func (s *Server) count(add func(*Totals)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	add(&s.counts)
}

func (s *Server) current() Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// Cut closes the connections that are open, as a switch does that starts again. The host goes on accepting others.
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

// Inject makes the host fail in the given ways, in place of those before. Open connections and running commands keep
// the faults with which they began. The error is one of listening again after Down.
func (s *Server) Inject(f Faults) error {
	s.mu.Lock()
	s.faults = f
	port := s.port
	s.mu.Unlock()
	if f.Down {
		s.stopListening()
		return nil
	}
	return s.listen(port)
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
	s.listener, s.port = listener, listener.Addr().(*net.TCPAddr).Port
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

func (s *Server) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor is free, or the client was gone before
			remote.Sleep(s.fleet.ctx, 10*time.Millisecond)
			continue
		}
		s.count(func(c *Totals) { c.Connections++ })
		s.fleet.work.Go(func() { s.serve(conn) })
	}
}

// ErrPortInUse is wrapped by Start's error when another program listens where a
// host should: end it, or choose another port.
var ErrPortInUse = errors.New("the port is in use")

// maxSessions is sshd's default: the eleventh session at a time on a connection
// is refused (man sshd_config, MaxSessions).
const maxSessions = 10

// serve speaks SSH on a connection until either side ends it.
func (s *Server) serve(raw net.Conn) {
	ctx, cancel := context.WithCancel(s.connections())
	c := &clientConn{server: s, faults: s.current(), net: newGate(raw), ctx: ctx}
	s.fleet.work.Go(func() {
		<-ctx.Done()
		_ = c.net.Close() // it may be closed already
	})
	defer c.work.Wait()
	defer cancel()
	if c.faults.Silent {
		c.net.freeze()
		_, _ = c.net.Read(nil) // returns when the client or the fleet ends it
		return
	}
	server, channels, requests, err := ssh.NewServerConn(c.net, c.config())
	if err != nil {
		return // the client gets an error in its own handshake
	}
	c.user = server.User()
	s.count(func(n *Totals) { n.Logins++ })
	c.work.Go(func() { ssh.DiscardRequests(requests) }) // "no" is sshd's answer to keepalive@openssh.com too
	for channel := range channels {
		if channel.ChannelType() == "session" {
			c.openSession(channel)
		} else {
			_ = channel.Reject(ssh.UnknownChannelType, "unknown channel type")
		}
	}
}

func (c *clientConn) config() *ssh.ServerConfig {
	config := &ssh.ServerConfig{
		ServerVersion: "SSH-2.0-genv_sim",
		PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
			if c.faults.AuthRefused || !bytes.Equal(key.Marshal(), c.server.fleet.key.Marshal()) {
				return nil, errors.New("not the fleet's client key")
			}
			return nil, nil // no restrictions
		},
	}
	config.AddHostKey(c.server.key)
	return config
}

func (c *clientConn) openSession(channel ssh.NewChannel) {
	if int(c.sessions.Add(1)) > maxSessions {
		c.sessions.Add(-1)
		_ = channel.Reject(ssh.ConnectionFailed, "open failed") // sshd's words
		return
	}
	c.work.Go(func() {
		defer c.sessions.Add(-1)
		c.session(channel)
	})
}
