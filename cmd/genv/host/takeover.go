package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/instances"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// sayEvery is how often it is said that another process holds the lock.
const sayEvery = time.Minute

// takeOver makes the state root's, if it isn't yet. Before that any user may hold the lock of
// the state files for any time: it waits until ctx ends, and says for whom.
func (h *host) takeOver(ctx context.Context, log zerolog.Logger) error {
	said := time.Time{}
	for {
		err := h.takeOverOnce(ctx, log)
		var busy *disk.BusyError
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			return nil
		case !errors.As(err, &busy):
			return fmt.Errorf("take over the state of this host: %w", err)
		case time.Since(said) > sayEvery:
			said = time.Now()
			text := h.heldBy(ctx, busy)
			log.Warn().Msg(text)
			enforcement.NotifySystemd(log, "STATUS="+text)
		}
	}
}

// heldBy says which process keeps the state from being taken over.
func (h *host) heldBy(ctx context.Context, busy *disk.BusyError) string {
	by := busy.Holder.Describe()
	if busy.Holder != nil && busy.Holder.UID != nil {
		if name := (system.Users{}).Username(ctx, *busy.Holder.UID); name != "" {
			by += fmt.Sprintf(" (%q)", name)
		}
	}
	return fmt.Sprintf("the state of this host can't be taken over yet: %s is held by %s; waiting until it ends or is killed", busy.Path, by)
}

func (h *host) takeOverOnce(ctx context.Context, log zerolog.Logger) error {
	dir := disk.Dir(h.getenv)
	owned := func() (string, error) { return h.Store.OwnedPath(), nil }
	taken, err := h.Store.TakeOver(ctx, func(files *state.Files) error {
		return instances.Notes{Dir: dir}.Move(files, instances.Notes{Dir: dir, Owned: owned})
	})
	if err != nil {
		return err
	}
	for _, warning := range taken.Warnings {
		log.Warn().Msg(warning)
	}
	if taken.Done {
		log.Info().Str("from", dir).Msg("the state of this host was taken over: `genv host handover` gives it back")
	}
	return nil
}
