package genvhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

const idle = time.Hour // longer than any test

// Handle implements inprocess.Handler. What it does not expect is an error.
func (h *Host) Handle(ctx context.Context, r *inprocess.Request) int {
	line := strings.TrimPrefix(r.Line, "sudo -n ")
	token, serve := strings.CutPrefix(line, "genv usage serve")
	switch {
	case serve && h.old:
		fmt.Fprint(r.Stderr, "usage: genv usage [-h] {snapshot,execute} ...\n"+
			"genv usage: error: argument command: invalid choice: 'serve' (choose from 'snapshot', 'execute')\n")
		return 2
	case serve:
		return h.serve(ctx, strings.TrimPrefix(token, " --token "), r)
	case line == "genv usage snapshot":
		return h.print(r, snapshot.EncodeSnapshot)
	case r.Line == "genv usage snapshot --type devices":
		return h.print(r, func(s *snapshot.Snapshot) ([]byte, error) { return snapshot.EncodeDevices(s.Devices) })
	case r.Line == "genv usage snapshot --type envs":
		return h.print(r, func(s *snapshot.Snapshot) ([]byte, error) { return snapshot.EncodeEnvironments(s.Environments) })
	case line == "genv usage execute":
		return h.runExecute(r)
	}
	fmt.Fprintf(r.Stderr, "sh: 1: %s: not found\n", line)
	return 127
}

func (h *Host) serve(ctx context.Context, token string, r *inprocess.Request) int {
	wanted, hungUp := context.WithCancel(ctx)
	defer hungUp()
	r.Stdin = watched{r.Stdin, hungUp}
	b := &conversation{host: h, out: &damager{w: r.Stdout}, wanted: wanted}
	r.Stdout = b.out
	greeting := agent.NewGreeting("simulated")
	answers := &agent.Answers{Backend: b}
	if h.run != "" {
		answers.Tokens = func(own string) ([]string, error) {
			return fence.Tokens(h.run, h.state.StateFolder, own, time.Now())
		}
	}
	if h.events {
		answers.Event = b.Wait
		greeting.Capabilities = append(greeting.Capabilities, agent.CapabilityEvents)
	}
	return Speak(ctx, r, &agent.Responder{Token: token, ReadToken: token == "", Idle: idle, Handler: answers.Handle, Greeting: greeting})
}

// Speak is a command that serves a conversation over its streams. No write is in progress when it returns.
func Speak(ctx context.Context, r *inprocess.Request, server *agent.Responder) int {
	out := &gate{w: r.Stdout}
	defer out.close()
	if err := server.Serve(ctx, r.Stdin, out); err != nil {
		fmt.Fprintln(r.Stderr, err)
		return 1
	}
	return 0
}

// watched calls ended when the reader ends.
type watched struct {
	io.Reader
	ended func()
}

func (w watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil {
		w.ended()
	}
	return n, err
}

// gate is an output that can be closed: a Server may return while one of its writes waits, and a Handler must not.
type gate struct {
	mu     sync.Mutex
	w      io.Writer
	closed bool
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0, io.ErrClosedPipe
	}
	return g.w.Write(p)
}

// close waits for a write in progress, which ends with the connection.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

func (h *Host) print(r *inprocess.Request, encode func(*snapshot.Snapshot) ([]byte, error)) int {
	h.mu.Lock()
	document, err := encode(h.state)
	h.mu.Unlock()
	if err != nil {
		fmt.Fprintln(r.Stderr, err)
		return 1
	}
	_, _ = r.Stdout.Write(append(document, '\n')) // the client may have gone
	return 0
}

func (h *Host) runExecute(r *inprocess.Request) int {
	data, err := io.ReadAll(r.Stdin)
	if err != nil {
		return 1
	}
	o, err := order.Decode143(data)
	if err != nil {
		fmt.Fprintln(r.Stderr, err)
		return 1
	}
	lines, _ := h.carryOut(o)
	for _, line := range lines {
		fmt.Fprintln(r.Stdout, line)
	}
	return 0
}

// Behavior is how a host behaves at one request; the zero value answers as genv does.
type Behavior struct {
	Wait   time.Duration // before it does anything
	Freeze bool          // does nothing until the client hangs up
	Damage Damage        // what becomes of the answer, after the request is carried out
}

// Damage is what becomes of an answer.
type Damage int32

// The kinds of damage.
const (
	Intact  Damage = iota
	Silent         // it is never written
	Cut            // half of it is written, and then the command ends
	Hangup         // the command ends without it
	Garbled        // one byte is another
	Noise          // other bytes are written in its place
	Double         // it is written twice
)

func (m Behavior) pause(ctx, wanted context.Context) error {
	if m.Wait <= 0 && !m.Freeze {
		return nil
	}
	over := time.After(m.Wait)
	if m.Freeze {
		over = nil
	}
	select {
	case <-over:
		return nil
	case <-wanted.Done():
		return context.Cause(wanted)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errHangup = errors.New("the host hangs up")

// damager is a writer that may damage the next answer. A frame comes in one Write.
type damager struct {
	w    io.Writer
	next atomic.Int32 // a Damage
}

func (t *damager) Write(p []byte) (int, error) {
	switch Damage(t.next.Swap(int32(Intact))) {
	case Silent:
		return len(p), nil
	case Cut:
		_, _ = t.w.Write(p[:len(p)/2]) // the error below counts
		return 0, errHangup
	case Hangup:
		return 0, errHangup
	case Garbled:
		p = bytes.Clone(p)
		p[len(p)-1] ^= 0x20
	case Noise:
		p = []byte("\x00\xff{\"processes\": []}\n")
	case Double:
		p = bytes.Repeat(p, 2)
	}
	if _, err := t.w.Write(p); err != nil {
		return 0, err
	}
	return len(p), nil
}
