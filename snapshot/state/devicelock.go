package state

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// LockDevices takes the exclusive locks of devices, in index order, and waits
// for them as long as ctx allows. They are flock(2) locks on
// devices/INDEX.lock, which flock(1) and the Python SDK of 1.4.3 take too. The
// locks are held until release is called or the process ends; no child
// inherits them. A BusyError names who holds the one that was waited for.
func (s *Store) LockDevices(ctx context.Context, indices []snapshot.DeviceIndex) (release func(), err error) {
	dir, err := s.deviceFolder()
	if err != nil {
		return nil, err
	}
	defer dir.close()
	var held []*os.File
	release = func() {
		for _, file := range held {
			unlock(file)
		}
		held = nil
	}
	for _, index := range slices.Compact(slices.Sorted(slices.Values(indices))) {
		if index < 0 {
			release()
			return nil, fmt.Errorf("%w: device %d: an index is not negative", ErrRequest, index)
		}
		file, err := s.lock(ctx, dir, index.String()+".lock")
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, file)
	}
	return release, nil
}

// deviceFolder opens the folder of the device locks.
func (s *Store) deviceFolder() (*folder, error) {
	dir, err := openFolder(s.dir)
	if err != nil {
		return nil, err
	}
	defer dir.close()
	return dir.subfolder("devices", dir.join("devices"))
}
