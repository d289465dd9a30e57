package service

import (
	"context"
	"errors"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// WithDevices makes a change, and again with the devices that list finds if too few are
// registered for it. list is called without the lock of the files. The error is one of change
// or of the store, or that of list where no device is registered at all.
func WithDevices(ctx context.Context, store *disk.Store, list func(context.Context) ([]snapshot.Device, error), change func() error) error {
	err := change()
	none := errors.Is(err, state.ErrNoDevices)
	var unavailable *state.UnavailableError
	if !none && (!errors.As(err, &unavailable) || !unavailable.TooFew) {
		return err
	}
	found, listErr := list(ctx)
	switch {
	case listErr != nil && none:
		return listErr
	case listErr != nil:
		return err
	}
	if _, err := store.RegisterDevices(ctx, found); err != nil {
		return err
	}
	return change()
}
