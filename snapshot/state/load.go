package state

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// The files that 1.4.3 reads and writes too.
const (
	envsFile    = "envs.json"
	devicesFile = "devices.json"
)

// loaded is what stands in the files.
type loaded struct {
	books     Books
	envs      []byte // as we would write it; nil when there is no file
	devices   []byte // likewise
	envsStamp stamp  // of envs.json as it was read
}

// load reads the files. It wants the lock to be held.
func (s *Store) load(ctx context.Context, dir *folder) (l loaded, err error) {
	var st unix.Stat_t
	l.books.Environments, st, err = decodeFile(ctx, s, dir, envsFile, snapshot.DecodeEnvironments)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.books.Environments = nil
	case err != nil:
		return loaded{}, err
	default:
		l.envsStamp = stampOf(&st)
		if l.envs, err = snapshot.EncodeEnvironments(l.books.Environments); err != nil {
			return loaded{}, err
		}
	}
	l.books.Devices, _, err = decodeFile(ctx, s, dir, devicesFile, snapshot.DecodeDevices)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		l.books.Devices = nil
		return l, nil
	case err != nil:
		return loaded{}, err
	}
	l.devices, err = snapshot.EncodeDevices(l.books.Devices)
	return l, err
}

// decodeFile reads and decodes a file. 1.4.3 truncates a file and then writes
// it, and one that is still at it should be done within moments even if it
// does not keep the lock to the end; after that the file is corrupt.
func decodeFile[T any](ctx context.Context, s *Store, dir *folder, name string, decode func([]byte) (T, error)) (T, unix.Stat_t, error) {
	const attempts, pause = 5, 10 * time.Millisecond
	for attempt := 1; ; attempt++ {
		data, st, err := dir.read(name)
		if err != nil {
			var none T
			return none, st, err
		}
		decoded, err := decode(data)
		if err == nil {
			return decoded, st, nil
		}
		s.step("unreadable " + name)
		if attempt == attempts || !sleep(ctx, pause) {
			return decoded, st, s.corrupt(dir, name, data, &st, err)
		}
	}
}

// sleep waits, and says whether it could do so to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
