package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/agent/frame"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Call is a request of a controller at the host.
type Call struct {
	*frame.Frame
	Token string // of the conversation; empty if it came as an argument, which others can see
	// Wanted ends when the answer isn't needed any more. Requests for information may stop then. Actions heed the
	// handler's own context, so that they aren't left half done.
	Wanted context.Context
}

// Handler answers a request. The text of an error is sent to the controller; the connection stays open.
type Handler func(ctx context.Context, request Call) ([]byte, error)

// ErrReplaced says that the program's file was replaced.
var ErrReplaced = errors.New("the program was replaced")

// ErrIdle says that for too long no request came, or no answer was read.
var ErrIdle = errors.New("nothing was asked for too long")

// Responder is the host's end of one conversation.
type Responder struct {
	Token     string // begins the greeting; the other end chose it
	ReadToken bool   // read the token from the first line of the input, so that sudoers need not allow arguments
	Greeting  frame.Greeting
	Handler   Handler
	Idle      time.Duration // how long to wait for a request, and for an answer to be read
	// Replaced, if set, reports whether the program's file was replaced. Then Serve ends between two requests, so that
	// controllers connect to the new program.
	Replaced func() bool

	wanted  context.Context // ends when the controller hangs up
	hungUp  func()          // ends wanted
	out     io.Writer
	writing sync.Mutex
	secret  string        // see Call.Token
	shown   chan struct{} // closed when the last messages are shown; nil before the first

	requests chan *frame.Frame // closed once failed is set
	failed   error             // why no more requests come; io.EOF after the last one
	orders   *errgroup.Group
	underWay atomic.Int32 // orders
	checked  time.Time    // when Replaced was called
	replaced bool         // its last answer
	endWait  func()       // ends the last RequestWait; nil before the first
}

// replacedCheck is the time between calls of Replaced. Serve ends when it was true twice: by then a program is copied
// completely.
const replacedCheck = time.Second

// Serve greets and answers requests until in ends, which isn't an error, ctx ends, or Idle is over. It handles other
// requests one after the other, but in the background orders (RequestExecute), at most 16 at a time, messages
// (RequestNotify), in their order, and a RequestWait, which ends the last one. It returns when all handlers have. A
// read or write that still waits then lasts until its file is closed or the program ends.
func (c *Responder) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	buffered := bufio.NewReaderSize(in, 512) // a request takes one system call
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	c.out = out
	c.wanted, c.hungUp = context.WithCancel(ctx)
	orders, failed := errgroup.WithContext(ctx) // the first answer that can't be sent ends the conversation
	orders.SetLimit(enforce.MaxOrdersUnderWay + maxQueued)
	c.orders = orders
	defer func() {
		c.hungUp()
		_ = orders.Wait() // its error is returned where it is the reason
	}()
	token, err := c.token(ctx, buffered)
	if err != nil {
		return err
	}
	if c.ReadToken {
		c.secret = token
	}
	c.requests = make(chan *frame.Frame, maxQueued)
	go c.read(reading, buffered)
	greeting, err := c.Greeting.Encode(token)
	if err == nil {
		err = c.send(ctx, greeting)
	}
	if err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	for {
		f, err := c.next(failed)
		switch {
		case errors.Is(err, io.EOF):
			return orders.Wait()
		case err != nil:
		case f.Name == RequestExecute:
			err = c.begin(ctx, f)
		case f.Name == RequestNotify:
			c.notify(ctx, f)
		case f.Name == RequestWait:
			c.wait(ctx, f)
		default:
			err = c.answer(ctx, c.wanted, f)
		}
		if err != nil {
			return err
		}
	}
}

const maxToken = 128 // bytes

// token reads the token. It is empty if the input ends at once, as in a check whether the program runs.
func (c *Responder) token(ctx context.Context, in *bufio.Reader) (string, error) {
	if !c.ReadToken {
		return c.Token, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.Idle, ErrIdle)
	defer cancel()
	return within(ctx, func() (string, error) {
		line, err := in.ReadSlice('\n')
		switch token := strings.TrimSuffix(string(line), "\n"); {
		case errors.Is(err, io.EOF) && token == "":
			return "", nil
		case !text.IsMadeOf(token, ""):
			return "", fmt.Errorf("%w: the first line is not a token of letters and digits", frame.ErrProtocol)
		case len(token) > maxToken:
			return "", fmt.Errorf("%w: a token of more than %d bytes", frame.ErrProtocol, maxToken)
		case err != nil:
			return "", fmt.Errorf("read the token: %w", err)
		default:
			return token, nil
		}
	})
}

// next waits for a request. It returns io.EOF after the last one.
func (c *Responder) next(ctx context.Context) (*frame.Frame, error) {
	for began := time.Now(); ; {
		if c.isReplaced() {
			return nil, ErrReplaced
		}
		select {
		case f, open := <-c.requests:
			if !open {
				return nil, c.failed
			}
			return f, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(min(replacedCheck, c.Idle-time.Since(began))):
			if time.Since(began) < c.Idle {
				continue
			}
			if c.underWay.Load() == 0 {
				return nil, ErrIdle
			}
			began = time.Now() // the controller may be waiting for an order
		}
	}
}

// isReplaced reports whether Replaced was true twice, no order is under way and no request waits.
func (c *Responder) isReplaced() bool {
	if c.Replaced == nil || time.Since(c.checked) < replacedCheck {
		return false
	}
	before := c.replaced
	c.checked, c.replaced = time.Now(), c.Replaced()
	return before && c.replaced && c.underWay.Load() == 0 && len(c.requests) == 0
}

func (c *Responder) begin(ctx context.Context, f *frame.Frame) error {
	if c.underWay.Load() >= enforce.MaxOrdersUnderWay {
		return c.reply(ctx, f, nil, fmt.Errorf("%d orders are under way on this host: this one was not begun",
			enforce.MaxOrdersUnderWay))
	}
	c.underWay.Add(1)
	c.orders.Go(func() error {
		defer c.underWay.Add(-1)
		return c.answer(ctx, c.wanted, f)
	})
	return nil
}

// wait handles a RequestWait in the background, and ends the last one.
func (c *Responder) wait(ctx context.Context, f *frame.Frame) {
	if c.endWait != nil {
		c.endWait()
	}
	wanted, end := context.WithCancel(c.wanted)
	c.endWait = end
	c.orders.Go(func() error {
		defer end()
		return c.answer(ctx, wanted, f)
	})
}

// notify handles messages in the background, after earlier ones. Users' terminals and a disk may delay it.
func (c *Responder) notify(ctx context.Context, f *frame.Frame) {
	before, shown := c.shown, make(chan struct{})
	c.shown = shown
	c.orders.Go(func() error {
		defer close(shown)
		if before != nil {
			<-before
		}
		return c.answer(ctx, c.wanted, f)
	})
}

// answer handles a request. After wanted ends the answer isn't needed.
func (c *Responder) answer(ctx, wanted context.Context, request *frame.Frame) error {
	body, err := c.Handler(ctx, Call{request, c.secret, wanted})
	switch {
	case request.Name == RequestWait && c.wanted.Err() != nil:
		return nil // there is no client to answer
	case err == nil && len(body) > frame.MaxBody:
		err = fmt.Errorf("an answer of %d bytes is too long", len(body))
	}
	return c.reply(ctx, request, body, err)
}

func (c *Responder) reply(ctx context.Context, request *frame.Frame, body []byte, failed error) error {
	f := frame.Frame{Kind: frame.KindAnswer, ID: request.ID, Body: body}
	if failed != nil {
		text := failed.Error()
		f.Kind, f.Body = frame.KindRefusal, []byte(text[:min(len(text), maxRefusal)])
	}
	if err := c.send(ctx, f.Append(nil)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

// send writes a message. A controller that is frozen, or cut off without notice, doesn't read it.
func (c *Responder) send(ctx context.Context, message []byte) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.Idle, ErrIdle)
	defer cancel()
	_, err := within(ctx, func() (int, error) {
		c.writing.Lock()
		defer c.writing.Unlock()
		return c.out.Write(message) // at once, so that frames never mix
	})
	return err
}

const maxRefusal = 64 << 10 // bytes

// maxQueued is how many requests may wait for earlier ones. They are read at once, to know when they came.
const maxQueued = 8

// read reads requests in a goroutine: reading a pipe can't heed ctx, and it shows a hang-up while a request is handled.
func (c *Responder) read(ctx context.Context, in io.Reader) {
	defer close(c.requests)
	for last := uint64(0); ; {
		f, err := receive(in, last)
		if err != nil {
			c.failed = err
			c.hungUp()
			return
		}
		select {
		case c.requests <- f:
			last = f.ID
		case <-ctx.Done():
			c.failed = context.Cause(ctx)
			return
		}
	}
}

func receive(in io.Reader, last uint64) (*frame.Frame, error) {
	f, err := frame.Read(in)
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case err != nil:
		return nil, fmt.Errorf("read a request: %w", err)
	case f.Kind != frame.KindRequest || f.ID <= last:
		return nil, fmt.Errorf("%w: request %d of the kind %q after request %d", frame.ErrProtocol, f.ID, f.Kind, last)
	}
	f.Received = time.Now()
	return f, nil
}
