package notify

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce/policy"
)

// queueLength is how many events wait for a hook that is slow.
const queueLength = 64

// Queue tells hooks of events. Its methods may be called by several goroutines.
type Queue struct {
	failed  func(error)
	workers []*worker
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// worker is a hook with what it is still to be told.
type worker struct {
	hook   policy.Hook
	events chan event
}

type event struct {
	name policy.Event
	body []byte
}

// New begins to wait for events. failed is told, from several goroutines, of
// what did not arrive. Close the Queue.
func New(hooks []policy.Hook, failed func(error)) *Queue {
	ctx, cancel := context.WithCancel(context.Background())
	q := &Queue{failed: failed, cancel: cancel}
	for _, h := range hooks {
		w := &worker{hook: h, events: make(chan event, queueLength)}
		q.workers = append(q.workers, w)
		q.running.Go(func() { q.work(ctx, w) })
	}
	return q
}

// Send queues an event for the hooks that want it, and returns at once.
func (q *Queue) Send(name policy.Event, body []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	for _, w := range q.workers {
		if !slices.Contains(w.hook.On, name) {
			continue
		}
		select {
		case w.events <- event{name, body}:
		default:
			q.failed(fmt.Errorf("hook %s: it is too slow: an event %q is dropped, since %d wait already", nameOf(w.hook), name, queueLength))
		}
	}
}

// Close waits for as long as patience lasts until all that was queued has been
// told, and gives up the rest.
func (q *Queue) Close(patience time.Duration) {
	q.mu.Lock()
	if !q.closed {
		q.closed = true
		for _, w := range q.workers {
			close(w.events)
		}
	}
	q.mu.Unlock()
	timer := time.AfterFunc(patience, q.cancel)
	defer timer.Stop()
	q.running.Wait()
	q.cancel()
}

func (q *Queue) work(ctx context.Context, w *worker) {
	for e := range w.events {
		if err := deliver(ctx, w.hook, e); err != nil {
			q.failed(fmt.Errorf("hook %s: an event %q did not arrive: %w", nameOf(w.hook), e.name, err))
		}
	}
}

// backoff is the pause before the first retry; it doubles.
const backoff = 500 * time.Millisecond

// deliver tries as often as the hook says.
func deliver(ctx context.Context, h policy.Hook, e event) error {
	pause := backoff
	for try := 0; ; try++ {
		final, err := attempt(ctx, h, e)
		if err == nil || final || try >= h.Retries || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
			pause *= 2
		}
	}
}

// nameOf is how messages name a hook, without what may be secret in it.
func nameOf(h policy.Hook) string {
	if len(h.Command) > 0 {
		return h.Command[0]
	}
	address, _, _ := strings.Cut(h.Webhook, "?")
	if i := strings.Index(address, "://"); i >= 0 {
		host, _, _ := strings.Cut(address[i+3:], "/")
		if at := strings.LastIndexByte(host, '@'); at >= 0 {
			host = host[at+1:]
		}
		return address[:i+3] + host
	}
	return "webhook"
}
