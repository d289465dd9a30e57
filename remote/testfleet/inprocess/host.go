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

// Host is one SSH server of a Fleet.
type Host struct {
	name, address string
	number        int // its place in the fleet: part of the noise's seed
	handler       Handler
	fleet         *Fleet
	key, wrongKey ssh.Signer

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

// Name is the host's name in ssh_config.
func (h *Host) Name() string { return h.name }

// Address is the address that it listens on.
func (h *Host) Address() string { return h.address }

// Counts tells what happened so far.
func (h *Host) Counts() Counts {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts
}

func (h *Host) count(add func(*Counts)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	add(&h.counts)
}

// Inject makes the host fail in the given ways, in place of those before; with
// none it is healthy again. Connections and commands that are under way go on
// as they began. The error is one of listening again after Down.
func (h *Host) Inject(faults ...Fault) error {
	f := healthy()
	for _, fault := range faults {
		fault(&f)
	}
	h.mu.Lock()
	h.faults = f
	h.mu.Unlock()
	if f.down {
		h.stopListening()
		return nil
	}
	return h.listen(h.fleet.port)
}

func (h *Host) current() faults {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.faults
}

// listen opens the listener, unless it is open.
func (h *Host) listen(port int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listener != nil || h.fleet.ctx.Err() != nil {
		return nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(h.address, strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w: %s port %d: end the program that listens there, or choose another port", ErrPortInUse, h.address, port)
	}
	if err != nil {
		return fmt.Errorf("host %s: %w", h.name, err)
	}
	h.listener = listener
	h.fleet.work.Go(func() { h.accept(listener) })
	return nil
}

func (h *Host) stopListening() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listener != nil {
		_ = h.listener.Close() // nothing is lost with a listener
		h.listener = nil
	}
}

// port is the port that the listener got.
func (h *Host) port() int { return h.listener.Addr().(*net.TCPAddr).Port }

func (h *Host) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor is free, or the client was gone before
			pause(h.fleet.ctx, 10*time.Millisecond)
			continue
		}
		h.count(func(c *Counts) { c.Connections++ })
		h.fleet.work.Go(func() { h.serve(conn) })
	}
}
