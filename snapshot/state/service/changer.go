package service

import (
	"context"
	"errors"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/instances"
)

// Changer changes the state files of one host, safely for concurrent use.
type Changer struct {
	Store       *disk.Store
	Instances   instances.Notes
	ListDevices func(context.Context) ([]snapshot.Device, error)  // from nvidia-smi or, for many users, an inventory
	Turn        func(context.Context) (release func(), err error) // before the lock; nil: no wait
}

// Change applies a change, and retries it with nvidia-smi's devices if too few are registered. After an error nothing
// has changed, unless it says otherwise. Repeating a change is safe.
func (c Changer) Change(ctx context.Context, asked change.Change, by change.Requester) (change.Result, error) {
	by, err := asked.Prepare(by)
	if err != nil {
		return change.Result{}, err
	}
	var result change.Result
	err = WithDevices(ctx, c.Store, c.ListDevices, func() (err error) {
		result, err = c.apply(ctx, asked, by)
		return err
	})
	return result, err
}

func (c Changer) apply(ctx context.Context, asked change.Change, by change.Requester) (r change.Result, err error) {
	if c.Turn != nil {
		release, err := c.Turn(ctx)
		if err != nil {
			return change.Result{}, err
		}
		defer release()
	}
	err = c.Store.Update(ctx, func(f *state.Files) (err error) {
		r, err = asked.Apply(f, by)
		if err == nil && asked.Attach != nil && (len(asked.Attach.Instances) > 0 || asked.Attach.Refresh) {
			err = c.Instances.Save(f, asked.Attach.EID)
		}
		return err
	})
	return r, err
}

// WithDevices makes a change. If too few devices are registered, it registers those of list, called without the lock,
// and retries. list's error is returned only if none are registered.
func WithDevices(ctx context.Context, store *disk.Store, list func(context.Context) ([]snapshot.Device, error),
	change func() error,
) error {
	err := change()
	none := errors.Is(err, state.ErrNoDevices)
	if unavailable, ok := errors.AsType[*state.UnavailableError](err); !none && !(ok && unavailable.TooFew) {
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
