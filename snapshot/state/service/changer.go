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

// Changer changes the state files of one host. It may be used by any number of goroutines.
type Changer struct {
	Store       *disk.Store
	Instances   instances.Notes
	ListDevices func(context.Context) ([]snapshot.Device, error)  // asks nvidia-smi or, for many users, an inventory
	Turn        func(context.Context) (release func(), err error) // before the lock; nil doesn't wait
}

// Change applies a change, and again if nvidia-smi finds more devices than too few. After an error nothing has changed,
// or it says otherwise: the same change may be asked for again, and is made once.
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

// WithDevices makes a change, and again with the devices that list finds, without the lock, if too few are registered.
// An error of list counts only if there are none at all.
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
