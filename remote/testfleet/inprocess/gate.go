package inprocess

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// gate is a connection that can freeze: then it sends nothing more and answers nothing more, as a host that hangs.
// What arrives is thrown away meanwhile, so that the end of the connection is still noticed.
type gate struct {
	net.Conn
	deaf    atomic.Bool // what arrives is thrown away
	frozen  atomic.Bool // nothing is sent
	closed  chan struct{}
	closing sync.Once
}

func newGate(conn net.Conn) *gate { return &gate{Conn: conn, closed: make(chan struct{})} }

// deafen makes the host ignore what arrives from now on; it still sends.
func (g *gate) deafen() { g.deaf.Store(true) }

func (g *gate) freeze() {
	g.deafen()
	g.frozen.Store(true)
}

func (g *gate) Read(p []byte) (int, error) {
	if !g.deaf.Load() {
		n, err := g.Conn.Read(p)
		if err != nil {
			g.release()
		}
		if err != nil || !g.deaf.Load() {
			return n, err
		}
	}
	_, err := io.Copy(io.Discard, g.Conn)
	g.release()
	if err != nil {
		return 0, err
	}
	return 0, io.EOF
}

// release ends a Write that waits: when the client has gone, it would keep the connection open until the fleet ends.
func (g *gate) release() { g.closing.Do(func() { close(g.closed) }) }

func (g *gate) Write(p []byte) (int, error) {
	if g.frozen.Load() {
		<-g.closed
		return 0, net.ErrClosed
	}
	return g.Conn.Write(p)
}

func (g *gate) Close() error {
	g.release()
	return g.Conn.Close()
}

// meter counts a command's stdout and breaks the connection at a given byte.
type meter struct {
	w      io.Writer
	conn   *gate
	faults *Faults
	sent   int64
}

func (m *meter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	written := 0
	if limit := m.faults.BreakAfter; limit != nil && m.sent+int64(len(p)) > *limit {
		head := p[:max(*limit-m.sent, 0)]
		if m.faults.Freezes {
			m.conn.deafen() // or a client that has read the head is still answered
		}
		n, err := m.w.Write(head)
		m.sent, written, p = m.sent+int64(n), n, p[n:]
		if err != nil {
			return written, err
		}
		m.trip()
	}
	n, err := m.w.Write(p)
	m.sent += int64(n)
	return written + n, err
}

// finish breaks the connection of a command that wrote just as much as it may.
func (m *meter) finish() {
	if limit := m.faults.BreakAfter; limit != nil && m.sent >= *limit {
		m.trip()
	}
}

func (m *meter) trip() {
	if m.faults.Freezes {
		m.conn.freeze()
	} else {
		_ = m.conn.Close() // the handler's next write fails
	}
}

// Faults are the ways in which a host fails; see Server.Inject. The figures are exact,
// so that a test sees the same on every run. The zero Faults are a healthy host.
type Faults struct {
	Down        bool // refuses every connection: no server listens. Open connections stay open
	Silent      bool // accepts connections and never sends a byte
	AuthRefused bool // accepts no key
	NoExit      bool // ends each command without an exit status, as a killed sshd does
	// Before is on stdout ahead of what a command writes, as from a noisy shell start-up file, and
	// Flood and FloodStderr are how many bytes of seeded noise are.
	Before             string
	Flood, FloodStderr int64
	Delay              time.Duration // before each command begins
	// BreakAfter, if set, closes the connection once so many bytes of a command's stdout are sent;
	// with 0 as soon as it writes anything or ends. If it Freezes instead, it is kept open, and nothing
	// is read or written on it any more, as by a host that hangs.
	BreakAfter *int64
	Freezes    bool
}
