package inprocess

import (
	"context"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/ssh"
)

// session serves one channel: it runs the first "exec" and refuses everything
// else, since the fleet has no terminals, subsystems or login shells.
func (c *connection) session(offer ssh.NewChannel) {
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
			c.server.count(func(n *Counts) { n.Commands++ })
			command.Go(func() { c.run(ctx, channel, exec.Line) })
		}
	}
}

// run answers a command, with the host's faults.
func (c *connection) run(ctx context.Context, channel ssh.Channel, line string) {
	defer func() { _ = channel.Close() }() // io.EOF when the client was first
	if !pause(ctx, c.faults.delay) {
		return
	}
	stdout := &meter{w: channel, conn: c.net, faults: &c.faults}
	c.makeNoise(stdout, channel.Stderr())
	status := c.server.Handler.Handle(ctx, &Request{
		Host: c.server.Name, User: c.user, Line: line, Stdin: channel, Stdout: stdout, Stderr: channel.Stderr(),
	})
	stdout.finish()
	if ctx.Err() != nil || c.faults.noExit {
		return
	}
	_ = channel.CloseWrite()
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(status)}))
}

func (c *connection) makeNoise(stdout, stderr io.Writer) {
	_, _ = stdout.Write(c.faults.before)
	random := rand.NewChaCha8([32]byte{byte(c.server.number), byte(c.server.number >> 8)}) // the same in each run
	_, _ = io.CopyN(stdout, random, c.faults.flood)
	_, _ = io.CopyN(stderr, random, c.faults.floodStderr)
}

// pause waits; false means that ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// connection is one client's connection to a host.
type connection struct {
	server   *Server
	faults   faults
	net      *gate
	ctx      context.Context // the connection's life
	user     string
	sessions atomic.Int32
	work     sync.WaitGroup // goroutines of its channels
}
