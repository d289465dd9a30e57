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
	Store     *disk.Store
	Instances instances.Notes
	// ListDevices asks nvidia-smi for the devices of the host. It is called without the
	// lock, for each change that asks for more devices than there are: where many users
	// ask, it answers from an inventory that it takes from time to time.
	ListDevices func(context.Context) ([]snapshot.Device, error)
	// Turn waits until it is the asker's turn to take the lock; nil doesn't wait.
	Turn func(context.Context) (release func(), err error)
}

// Change applies a change. If that fails because there are too few devices, nvidia-smi is asked whether the host has
// more by now. After an error the files are as they were, unless it is one of the disk that says otherwise: then the
// same change may be asked for again, and is made once. It is one of Change.Apply, of Store.Update or of nvidia-smi.
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

func (c Changer) apply(ctx context.Context, asked change.Change,
	by change.Requester,
) (result change.Result, err error) {
	if c.Turn != nil {
		release, err := c.Turn(ctx)
		if err != nil {
			return change.Result{}, err
		}
		defer release()
	}
	err = c.Store.Update(ctx, func(f *state.Files) (err error) {
		result, err = asked.Apply(f, by)
		if err == nil && asked.Attach != nil && (len(asked.Attach.Instances) > 0 || asked.Attach.Refresh) {
			err = c.Instances.Save(f, asked.Attach.EID)
		}
		return err
	})
	if err != nil {
		return change.Result{}, err
	}
	return result, nil
}

// WithDevices makes a change, and again with the devices that list finds if too few are
// registered for it. list is called without the lock of the files. The error is one of change
// or of the store, or that of list where no device is registered at all.
func WithDevices(ctx context.Context, store *disk.Store, list func(context.Context) ([]snapshot.Device, error),
	change func() error,
) error {
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
