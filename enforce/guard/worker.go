package guard

import (
	"context"
	"time"
)

// worker does one kind of work on request, in a goroutine of its own, since it may hang.
// Requests that come while it is busy are one. Its results are read from done.
type worker[T any] struct {
	requests chan struct{}
	done     chan T
	ended    chan struct{} // closed when its goroutine has ended
}

// maxPause bounds how long a worker rests.
const maxPause = time.Second

func startWorker[T any](ctx context.Context, work func(context.Context) T) *worker[T] {
	w := &worker[T]{requests: make(chan struct{}, 1), done: make(chan T), ended: make(chan struct{})}
	go func() {
		defer close(w.ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-w.requests:
			}
			begun := time.Now()
			result := work(ctx)
			select {
			case <-ctx.Done():
				return
			case w.done <- result:
			}
			w.rest(ctx, time.Since(begun))
		}
	}()
	return w
}

// wait waits until the worker has ended after its context, for a moment: it may hang.
func (w *worker[T]) wait() {
	select {
	case <-w.ended:
	case <-time.After(maxPause):
	}
}

// rest waits four times as long as the work took: a user who changes large state files all
// the time gets a fifth of a processor.
func (w *worker[T]) rest(ctx context.Context, worked time.Duration) {
	if worked < time.Millisecond {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(min(4*worked, maxPause)):
	}
}

// request asks for work. It never blocks.
func (w *worker[T]) request() {
	select {
	case w.requests <- struct{}{}:
	default: // it is asked for already
	}
}
