package state

import (
	"bytes"
	"context"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"
)

// The files that 1.4.3 reads and writes too.
const (
	envsFile    = "envs.json"
	devicesFile = "devices.json"
)

// loaded is what stands in the files.
type loaded struct {
	books     Files
	envs      []byte // nil when there is no file
	devices   []byte // likewise
	envsStamp stamp  // of envs.json as it was read

	envsErr, devicesErr error // why a file could not be read
	envsRestored        bool  // from root's copy
}

// load reads the files. It wants the lock to be held.
func (s *Store) load(ctx context.Context, dir *folder) (loaded, error) {
	l := s.loadEach(ctx, dir)
	return l, l.err()
}

// loadEach is load for a caller that handles the error of each file.
func (s *Store) loadEach(ctx context.Context, dir *folder) (l loaded) {
	var st unix.Stat_t
	l.books.Environments, l.envs, st, l.envsErr = decodeFile(ctx, s, dir, envsFile, decodeEnvironments)
	l.envsErr = ignore(l.envsErr, fs.ErrNotExist)
	l.envsStamp = stampOf(&st)
	l.books.Devices, l.devices, _, l.devicesErr = decodeFile(ctx, s, dir, devicesFile, decodeDevices)
	l.devicesErr = ignore(l.devicesErr, fs.ErrNotExist)
	return l
}

func (l *loaded) err() error {
	if l.envsErr != nil {
		return l.envsErr
	}
	return l.devicesErr
}

// decodeFile reads and decodes a file. 1.4.3 truncates a file and then writes
// it, and one that is still at it should be done within moments even if it
// does not keep the lock to the end; after that the file is corrupt.
func decodeFile[T any](ctx context.Context, s *Store, dir *folder, name string, decode func([]byte) ([]T, error)) ([]T, []byte, unix.Stat_t, error) {
	const attempts, pause = 5, 10 * time.Millisecond
	var before []byte
	var cause error
	for attempt := 1; ; attempt++ {
		data, st, err := dir.read(name)
		if err != nil {
			return nil, nil, st, err
		}
		if attempt == 1 || !bytes.Equal(data, before) { // the same text again would only take its time again
			var decoded []T
			if decoded, cause = decode(data); cause == nil {
				return decoded, data, st, nil
			}
			before = data
		}
		s.step("unreadable " + name)
		if attempt == attempts || !sleep(ctx, pause) {
			return nil, nil, st, s.corrupt(dir, name, data, &st, cause)
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
