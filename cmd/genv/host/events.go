package host

import (
	"context"
	"sync"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/watch"
)

// events says when a look at this machine is worth it. It begins to watch when somebody waits
// for the first time, so that it costs nothing otherwise.
type events struct {
	host *host
	log  zerolog.Logger

	mu      sync.Mutex
	watcher *watch.Watcher // nil until somebody waits
}

// Wait implements agent.Events.
func (e *events) Wait(ctx context.Context) error {
	e.mu.Lock()
	if e.watcher == nil {
		e.watcher = e.host.Watch(e.host.getenv, e.log)
	}
	watcher := e.watcher
	e.mu.Unlock()
	return watcher.Wait(ctx)
}

// snapshot is a look at this machine.
func (e *events) snapshot(ctx context.Context, age local.Age) (s *snapshot.Snapshot, err error) {
	e.mu.Lock()
	watcher := e.watcher
	e.mu.Unlock()
	if watcher != nil {
		done := watcher.Look()
		defer func() { done(s) }()
	}
	return e.host.snapshot(ctx, age)
}

func (e *events) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.watcher != nil {
		e.watcher.Close()
	}
}
