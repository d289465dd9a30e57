package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Handler does what requests ask for.
type Handler interface {
	// Handle returns the answer to a request. An error is told to the
	// controller in its words, and the conversation goes on.
	Handle(ctx context.Context, name string, body []byte) ([]byte, error)
}

// Serve greets and answers requests until in ends, ctx ends, or nothing was
// asked for as long as idle. The end of in is the ordinary end, and no error.
// A request that is being handled then is handled to its end, as far as the
// handler heeds ctx. in is closed; a read that this does not free goes on
// behind Serve's back until the program ends.
func Serve(ctx context.Context, in io.ReadCloser, out io.Writer, token string, greeting Greeting, handler Handler, idle time.Duration) error {
	if err := writeGreeting(out, token, greeting); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer in.Close()
	defer cancel()
	requests := readRequests(ctx, in)
	clock := time.NewTimer(idle)
	defer clock.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-clock.C:
			return ErrIdle
		case r := <-requests:
			if errors.Is(r.err, io.EOF) {
				return nil
			}
			if r.err != nil {
				return r.err
			}
			if err := writeFrame(out, handle(ctx, handler, r.frame)); err != nil {
				return fmt.Errorf("answer: %w", err)
			}
			clock.Reset(idle)
		}
	}
}

// received is a request, or why there are no more.
type received struct {
	frame *frame
	err   error
}

// readRequests reads in a goroutine of its own, since a read of a pipe cannot
// be made to heed ctx.
func readRequests(ctx context.Context, in io.Reader) <-chan received {
	requests := make(chan received)
	go func() {
		for last := uint64(0); ; {
			r := receive(in, last)
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
			if r.err != nil {
				return
			}
			last = r.frame.id
		}
	}()
	return requests
}

// receive reads the request after the one with the id last.
func receive(in io.Reader, last uint64) received {
	f, err := readFrame(in)
	switch {
	case errors.Is(err, io.EOF):
		return received{err: io.EOF}
	case err != nil:
		return received{err: fmt.Errorf("read a request: %w", err)}
	case f.kind != kindRequest || f.id <= last:
		return received{err: fmt.Errorf("%w: request %d of the kind %q after request %d", ErrProtocol, f.id, f.kind, last)}
	}
	return received{frame: f}
}

// ErrIdle says that nobody asked anything for too long.
var ErrIdle = errors.New("nothing was asked for too long")

func handle(ctx context.Context, handler Handler, request *frame) *frame {
	body, err := handler.Handle(ctx, request.name, request.body)
	if err != nil {
		return &frame{kind: kindRefusal, id: request.id, body: []byte(err.Error())}
	}
	if len(body) > MaxBody {
		return &frame{kind: kindRefusal, id: request.id, body: fmt.Appendf(nil, "an answer of %d bytes is too long", len(body))}
	}
	return &frame{kind: kindAnswer, id: request.id, body: body}
}
