package host

import (
	"context"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/local"
)

// Wait is for agent.Answers. The machine is watched from the first call on, so that it costs nothing otherwise.
func (h *host) Wait(ctx context.Context) error {
	h.watching.Lock()
	if h.watcher == nil {
		h.watcher = h.Watch(h.getenv, h.log)
	}
	watcher := h.watcher
	h.watching.Unlock()
	return watcher.Wait(ctx)
}

// look is snapshot, after which a Wait begins again.
func (h *host) look(ctx context.Context, age local.Age) (s *snapshot.Snapshot, err error) {
	h.watching.Lock()
	watcher := h.watcher
	h.watching.Unlock()
	if watcher != nil {
		done := watcher.Look()
		defer func() { done(s) }()
	}
	return h.snapshot(ctx, age)
}

func (h *host) stopWatching() {
	h.watching.Lock()
	defer h.watching.Unlock()
	if h.watcher != nil {
		h.watcher.Close()
	}
}
