package hooks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// queueLength is how many events wait for a hook that is slow.
const queueLength = 64

// Event is what hooks get.
type Event struct {
	Name policy.Event
	JSON []byte
	Chat []byte   // the message for Slack
	IDs  []string // of findings that it is about
}

// Result is what became of an event at one hook.
type Result struct {
	Event
	To      string // the program, or the address without the parts that may be secret
	Webhook bool
	Err     error // nil if it arrived
}

// Queue sends events to hooks. It is safe for concurrent use.
type Queue struct {
	done    func(Result)
	workers []*worker
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// worker is a hook and the events that wait for it.
type worker struct {
	hook   policy.Hook
	events chan Event
}

// NewQueue starts a Queue, which must be closed. done is called, by several goroutines, for
// each event of each hook.
func NewQueue(hooks []policy.Hook, done func(Result)) *Queue {
	ctx, cancel := context.WithCancel(context.Background())
	q := &Queue{done: done, cancel: cancel}
	for _, h := range hooks {
		w := &worker{hook: h, events: make(chan Event, queueLength)}
		q.workers = append(q.workers, w)
		q.running.Go(func() { q.work(ctx, w) })
	}
	return q
}

// Send queues an event for the hooks that want it, and returns at once.
func (q *Queue) Send(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for _, w := range q.workers {
		if !slices.Contains(w.hook.On, e.Name) {
			continue
		}
		select {
		case w.events <- e:
		default:
			q.conclude(w.hook, e, fmt.Errorf("hook %s: it is too slow: an event %q is dropped, since %d wait already",
				nameOf(w.hook), e.Name, queueLength))
		}
	}
}

// Close waits until all queued events are sent, or the timeout is over; then it
// drops the others.
func (q *Queue) Close(timeout time.Duration) {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		for _, w := range q.workers {
			close(w.events)
		}
	}
	q.mu.Unlock()
	timer := time.AfterFunc(timeout, q.cancel)
	defer timer.Stop()
	q.running.Wait()
	q.cancel()
}

func (q *Queue) work(ctx context.Context, w *worker) {
	for e := range w.events {
		err := deliver(ctx, w.hook, e)
		if err != nil {
			err = fmt.Errorf("hook %s: an event %q did not arrive: %w", nameOf(w.hook), e.Name, err)
		}
		q.conclude(w.hook, e, err)
	}
}

func (q *Queue) conclude(h policy.Hook, e Event, err error) {
	q.done(Result{Event: e, To: nameOf(h), Webhook: h.Webhook != "", Err: err})
}

// backoff is the pause before the first retry; it doubles.
const backoff = 500 * time.Millisecond

// deliver sends an event, with as many retries as the hook has.
func deliver(ctx context.Context, h policy.Hook, e Event) error {
	pause := backoff
	for try := 0; ; try++ {
		final, err := attempt(ctx, h, e)
		if err == nil || final || try >= h.Retries || ctx.Err() != nil {
			return err
		}
		if !remote.Sleep(ctx, pause) {
			return err
		}
		pause *= 2
	}
}

// nameOf is how messages name a hook, without the parts of an address that may be
// secret.
func nameOf(h policy.Hook) string {
	if len(h.Command) > 0 {
		return h.Command[0]
	}
	u, err := url.Parse(h.Webhook)
	if err != nil || u.Host == "" {
		return "webhook"
	}
	return u.Scheme + "://" + u.Host
}

// attempt sends an event once. final says that another try would not help.
func attempt(ctx context.Context, h policy.Hook, e Event) (final bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	if len(h.Command) > 0 {
		return false, run(ctx, h, e)
	}
	return post(ctx, h, e)
}

// run runs the program with the event on its stdin. Its own children end with
// it when the time is over.
func run(ctx context.Context, h policy.Hook, e Event) error {
	cmd := exec.CommandContext(ctx, h.Command[0], h.Command[1:]...)
	cmd.Stdin = bytes.NewReader(e.JSON)
	cmd.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8",
		"GENV_EVENT=" + string(e.Name),
	}
	output := &text.Head{Limit: 500}
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it succeeded, although a child still has its output open
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("it did not end within %s and was killed", h.Timeout)
	case ctx.Err() != nil:
		return errors.New("it was killed, since genv ends or its hooks have changed")
	}
	if said := strings.Join(strings.Fields(output.String()), " "); said != "" {
		return fmt.Errorf("%w: %s", err, said)
	}
	return err
}

// client follows no redirect: the administrator decides where events go.
var client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// post sends the event to the address. After a redirect or a client error, another try
// would fail again.
func post(ctx context.Context, h policy.Hook, e Event) (final bool, err error) {
	body := e.JSON
	if h.Slack {
		body = e.Chat
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.Webhook, bytes.NewReader(body))
	if err != nil {
		return true, errors.New("the address cannot be used") // the error would show it
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "genv")
	answer, err := client.Do(request)
	if err != nil {
		var shown *url.Error
		if errors.As(err, &shown) {
			err = shown.Err // without the address, which may hold a secret
		}
		return false, text.Late(err, h.Timeout)
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10)) // so that the connection can be used again
	code := answer.StatusCode
	if code < 300 {
		return false, nil
	}
	return code < 500 && code != http.StatusTooManyRequests, fmt.Errorf("the server answered %s", answer.Status)
}
