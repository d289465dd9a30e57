package top

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
)

const (
	// retryEvery is the time between two attempts to reach a controller that is gone.
	retryEvery = time.Second
	// leastPause is the least time between two updates, and pauseFactor how often longer
	// than a fetch it is otherwise: a large fleet is fetched less often.
	leastPause  = 100 * time.Millisecond
	pauseFactor = 9
)

// SocketSource is a Source of a controller's socket. It connects again when the controller
// was away.
type SocketSource struct {
	client *live.Client
	cancel context.CancelFunc
	ended  chan struct{}
	wake   chan struct{} // there is something new, or an error
	free   time.Time     // when the next fetch may begin

	mu     sync.Mutex
	run    string
	after  uint64 // the number of the last event
	events []live.Event
	err    error
}

// Follow begins to follow a controller. The caller closes the SocketSource.
func Follow(ctx context.Context, client *live.Client) *SocketSource {
	ctx, cancel := context.WithCancel(ctx)
	f := &SocketSource{client: client, cancel: cancel, ended: make(chan struct{}), wake: make(chan struct{}, 1)}
	go func() {
		defer close(f.ended)
		f.watch(ctx)
	}()
	return f
}

// Close ends the connections.
func (f *SocketSource) Close() {
	f.cancel()
	<-f.ended
	f.client.Close()
}

// watch takes the messages of the controller, over one connection after the other.
func (f *SocketSource) watch(ctx context.Context) {
	for ctx.Err() == nil {
		f.mu.Lock()
		run, after := f.run, f.after
		f.mu.Unlock()
		err := f.client.Watch(ctx, run, after, f.take)
		f.mu.Lock()
		f.err = fmt.Errorf("the controller doesn't answer (%w); trying again every second", err)
		f.mu.Unlock()
		f.notify()
		sleep(ctx, retryEvery)
	}
}

func (f *SocketSource) take(m live.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = nil
	switch {
	case m.Change != nil:
		if m.Change.Run != f.run {
			f.run, f.after = m.Change.Run, 0
		}
	case m.Event != nil:
		f.after = m.Event.Number
		f.events = withEvents(f.events, []live.Event{*m.Event})
	}
	f.notify()
}

func (f *SocketSource) notify() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Next implements Source.
func (f *SocketSource) Next(ctx context.Context) (Update, error) {
	select {
	case <-ctx.Done():
		return Update{}, ctx.Err()
	case <-f.wake:
	}
	sleep(ctx, time.Until(f.free))
	f.mu.Lock()
	events, err := f.events, f.err
	f.events = nil
	f.mu.Unlock()
	begun := time.Now()
	if err == nil {
		var fleet *live.Fleet
		if fleet, err = f.client.Fleet(ctx); err == nil {
			f.free = time.Now().Add(max(leastPause, pauseFactor*time.Since(begun)))
			return Update{Fleet: fleet, Events: events, Origin: "controller"}, nil
		}
	}
	f.mu.Lock()
	f.events = withEvents(events, f.events)
	f.mu.Unlock()
	return Update{}, err
}

func sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
