package inprocess

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
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
	// Environ is added to the machine's environment variables.
	Environ []string
}

// statusFailed is that of a shell that can't be started.
const statusFailed = 127

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
