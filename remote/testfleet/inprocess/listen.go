package inprocess

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

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
	port := s.port
	s.mu.Unlock()
	if f.down {
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
			pause(s.fleet.ctx, 10*time.Millisecond)
			continue
		}
		s.count(func(c *Counts) { c.Connections++ })
		s.fleet.work.Go(func() { s.serve(conn) })
	}
}

// ErrPortInUse is wrapped by Start's error when another program listens where a
// host should: end it, or choose another port.
var ErrPortInUse = errors.New("the port is in use")
