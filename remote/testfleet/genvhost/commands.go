package genvhost

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/wire"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
	"github.com/seed-3119e985/genv/snapshot"
)

// idle is longer than any test.
const idle = time.Hour

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
	b := &backend{host: h, out: &damager{w: r.Stdout}, wanted: wanted}
	r.Stdout = b.out
	greeting := agent.NewGreeting("simulated")
	answers := &agent.Answers{Backend: b}
	if h.events {
		answers.Events = b
		greeting.Capabilities = append(greeting.Capabilities, agent.CapabilityEvents)
	}
	return Speak(ctx, r, agent.Server{Token: token, ReadToken: token == "", Idle: idle, Handler: answers, Greeting: greeting})
}

// Speak is a command that serves a conversation over its streams. No write is in
// progress when it returns.
func Speak(ctx context.Context, r *inprocess.Request, server agent.Server) int {
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

// gate is an output that can be closed: a Server may return while one of its
// writes waits, and a Handler must not.
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
	report, err := wire.Decode143(data)
	if err != nil {
		fmt.Fprintln(r.Stderr, err)
		return 1
	}
	lines, _ := h.carryOut(report)
	for _, line := range lines {
		fmt.Fprintln(r.Stdout, line)
	}
	return 0
}
