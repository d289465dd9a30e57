package inprocess

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// gate is a connection that can freeze: then it sends nothing more and answers
// nothing more, as a host that hangs. What arrives is thrown away meanwhile, so
// that the end of the connection is still noticed.
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

// release ends a Write that waits: when the client has gone, it would keep the
// connection open until the fleet ends.
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
	faults *faults
	sent   int64
}

func (m *meter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	written := 0
	if limit := m.faults.breakAt; limit >= 0 && m.sent+int64(len(p)) > limit {
		head := p[:max(limit-m.sent, 0)]
		if m.faults.freezes {
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
	if limit := m.faults.breakAt; limit >= 0 && m.sent >= limit {
		m.trip()
	}
}

func (m *meter) trip() {
	if m.faults.freezes {
		m.conn.freeze()
	} else {
		_ = m.conn.Close() // the handler's next write fails
	}
}

// Fault is a way in which a host fails; see Server.Inject. The figures are exact,
// so that a test sees the same on every run.
type Fault func(*faults)

// faults is what a host does wrong.
type faults struct {
	down, silent, noAuth, noExit bool

	before             []byte
	flood, floodStderr int64
	delay              time.Duration
	// Once breakAt bytes of a command's stdout are sent, unless it is negative, the
	// connection freezes or is closed.
	breakAt int64
	freezes bool
}

func healthy() faults { return faults{breakAt: -1} }

// Down refuses every connection: no server listens. Open connections stay open.
func Down() Fault { return func(f *faults) { f.down = true } }

// Silent accepts connections and never sends a byte.
func Silent() Fault { return func(f *faults) { f.silent = true } }

// AuthRefused accepts no key.
func AuthRefused() Fault { return func(f *faults) { f.noAuth = true } }

// NoExit ends each command without an exit status, as a killed sshd does.
func NoExit() Fault { return func(f *faults) { f.noExit = true } }

// Before puts bytes on stdout ahead of what the command writes, as a noisy
// shell start-up file does.
func Before(garbage string) Fault { return func(f *faults) { f.before = []byte(garbage) } }

// Flood puts n bytes of seeded noise on stdout before the command's output.
func Flood(n int64) Fault { return func(f *faults) { f.flood = n } }

// FloodStderr puts n bytes of seeded noise on stderr before the command's own.
func FloodStderr(n int64) Fault { return func(f *faults) { f.floodStderr = n } }

// DropAfter closes the connection once n bytes of a command's stdout are sent;
// with 0 as soon as it writes anything or ends.
func DropAfter(n int64) Fault { return func(f *faults) { f.breakAt, f.freezes = n, false } }

// FreezeAfter neither reads nor writes on the connection any more once n bytes
// of a command's stdout are sent, and keeps it open, as a host that hangs.
func FreezeAfter(n int64) Fault { return func(f *faults) { f.breakAt, f.freezes = n, true } }

// Slow begins each command after a delay.
func Slow(delay time.Duration) Fault { return func(f *faults) { f.delay = delay } }
