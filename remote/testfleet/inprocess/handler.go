package inprocess

import (
	"context"
	"io"
)

// Handler answers the commands of a host. It is called once for each SSH
// "exec" request, from several goroutines at a time.
type Handler interface {
	// Handle runs a command and returns its exit status; 128+n means that
	// signal n ended it, as in a shell. ctx ends when the client closes the
	// session, when the connection is lost, and when the fleet closes.
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

// Func is a Handler inside this process. It costs no fork, so that a thousand
// hosts fit on a small machine.
type Func func(ctx context.Context, request *Request) int

// Handle calls f.
func (f Func) Handle(ctx context.Context, request *Request) int { return f(ctx, request) }
