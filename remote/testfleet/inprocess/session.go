package inprocess

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/testfleet"
)

// session serves one channel: it runs the first "exec" and refuses everything
// else, since the fleet has no terminals, subsystems or login shells.
func (c *clientConn) session(offer ssh.NewChannel) {
	channel, requests, err := offer.Accept()
	if err != nil {
		return // the connection is gone
	}
	ctx, cancel := context.WithCancel(c.ctx)
	var command sync.WaitGroup
	defer command.Wait()
	defer cancel() // requests end when the client closes the session
	begun := false
	for request := range requests {
		var exec struct{ Line string }
		ok := !begun && request.Type == "exec" && ssh.Unmarshal(request.Payload, &exec) == nil
		if request.WantReply {
			_ = request.Reply(ok, nil) // the client may have gone
		}
		if ok {
			begun = true
			c.server.count(func(n *Totals) { n.Commands++ })
			command.Go(func() { c.run(ctx, channel, exec.Line) })
		}
	}
}

// run answers a command, with the host's faults.
func (c *clientConn) run(ctx context.Context, channel ssh.Channel, line string) {
	defer func() { _ = channel.Close() }() // io.EOF when the client was first
	if !remote.Sleep(ctx, c.faults.Delay) {
		return
	}
	stdout := &meter{w: channel, conn: c.net, faults: &c.faults}
	c.makeNoise(stdout, channel.Stderr())
	status := c.server.Handler.Handle(ctx, &Request{
		Host: c.server.Name, User: c.user, Line: line, Stdin: channel, Stdout: stdout, Stderr: channel.Stderr(),
	})
	stdout.finish()
	if ctx.Err() != nil || c.faults.NoExit {
		return
	}
	_ = channel.CloseWrite()
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
}

func (c *clientConn) makeNoise(stdout, stderr io.Writer) {
	_, _ = io.WriteString(stdout, c.faults.Before)
	random := rand.NewChaCha8([32]byte{byte(c.server.number), byte(c.server.number >> 8)}) // the same in each run
	_, _ = io.CopyN(stdout, random, c.faults.Flood)
	_, _ = io.CopyN(stderr, random, c.faults.FloodStderr)
}

// clientConn is one client's connection to a host.
type clientConn struct {
	server   *Server
	faults   Faults
	net      *gate
	ctx      context.Context // the connection's life
	user     string
	sessions atomic.Int32
	work     sync.WaitGroup // goroutines of its channels
}

// Exec is a Handler that runs a host's commands on a machine, as sshd would: by a shell with the
// machine's environment variables, in a process group of its own, with the session's streams.
//
// When the session or the connection ends, the whole process group is killed.
type Exec struct {
	Machine *testfleet.Machine
	Environ []string // added to the machine's environment variables
}

const statusFailed = 127 // that of a shell that can't be started

// drainDelay is how long a child's own children may hold its streams open, or
// its client may leave them unread, after it has ended.
const drainDelay = 10 * time.Second

// Handle runs the command. A client that did not take all of the output does not make it fail.
func (e *Exec) Handle(ctx context.Context, r *Request) int {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", r.Line)
	cmd.Env = append(e.Machine.Environ(), e.Environ...)
	cmd.Dir = e.Machine.Dir
	cmd.Stdout, cmd.Stderr = r.Stdout, r.Stderr
	cmd.WaitDelay = drainDelay
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(r.Stderr, "sh: %v\n", err)
		return statusFailed
	}
	go func() { // ends with the session, which may be later than the command
		_, _ = io.Copy(stdin, r.Stdin)
		_ = stdin.Close()
	}()
	_ = cmd.Wait() // how it ended is in cmd.ProcessState
	return cmd.ProcessState.ExitCode()
}

// Handler answers the commands of a host. It is called once for each SSH
// "exec" request, from several goroutines at a time.
type Handler interface {
	// Handle runs a command and returns its exit status; 128+n means that signal n ended it, as in a shell. ctx ends
	// when the client closes the session, when the connection is lost, and when the fleet closes.
	Handle(ctx context.Context, request *Request) int
}

// Request is a command line and its streams. Writes fail once the client has
// gone; Stdin ends when the client closes it.
type Request struct {
	Host   string // the name of the host that was asked
	User   string // who logged in
	Line   string // what the client would have its login shell run
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Func is a Handler inside this process. It costs no fork, so that a thousand hosts fit on a small machine.
type Func func(ctx context.Context, request *Request) int

// Handle calls f.
func (f Func) Handle(ctx context.Context, request *Request) int { return f(ctx, request) }

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
