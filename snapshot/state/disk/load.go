package disk

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// maxFileSize bounds a state file, in bytes. 10,000 environments take about half.
const maxFileSize = 8 << 20

var stateFiles = [...]state.File{state.Envs, state.Devices}

// load reads and decodes the files; errs says which could not be read. The caller
// holds the lock, or knows what it does without.
func (t *transaction) load(ctx context.Context) {
	t.onDisk = state.Contents{}
	for _, file := range stateFiles {
		st, err := t.loadFile(ctx, file)
		t.errs[file] = folder.Ignore(err, fs.ErrNotExist)
		if file == state.Envs {
			t.stamp = stampOf(&st)
			if t.dir.owned && errors.Is(err, fs.ErrNotExist) {
				t.errs[file] = t.missingEnvs()
			}
		}
	}
	t.markFiles()
}

// markFiles adds to the files what is kept elsewhere, and says of which accounts environments are:
// genv 1.4.3 registers them for the uid. What is kept is also in the folder of the files.
func (t *transaction) markFiles() {
	for i := range t.files.Environments {
		env := &t.files.Environments[i]
		if account, err := (proc.FS{}).Account(env.UID); err == nil && env.UID != snapshot.NoUID {
			env.UID = account
		}
	}
	if t.Mark != nil && !t.tampered {
		t.Mark(&t.files)
	}
}

func (t *transaction) loadError() error { return cmp.Or(t.errs[:]...) }

// loadFile reads and decodes a file. 1.4.3 truncates a file and then writes it,
// which takes moments, and may give back the lock before it has finished. A file
// that can't be decoded after some attempts is corrupt.
func (t *transaction) loadFile(ctx context.Context, file state.File) (unix.Stat_t, error) {
	const attempts, pause = 5, 10 * time.Millisecond
	var before []byte
	var cause error
	for attempt := 1; ; attempt++ {
		data, st, err := t.dir.Read(file.String(), maxFileSize)
		if err != nil {
			return st, err
		}
		if attempt == 1 || !bytes.Equal(data, before) { // the same bytes would give the same error
			named := len(t.files.Warnings)
			if cause = t.files.Decode(file, data); cause == nil {
				if odd := t.files.Warnings[named:]; len(odd) > 0 && file == state.Devices && t.restores(file) {
					return st, &CorruptError{Path: t.dir.Join(file.String()), Cause: errors.New(odd[0]), Copy: t.keepCopy(file, data, &st)}
				}
				t.onDisk[file] = data
				if len(t.files.Warnings) > named { // the next change drops what could not be read
					t.keepCopy(file, data, &st)
				}
				return st, nil
			}
			before = data
		}
		t.step("unreadable " + file.String())
		if attempt == attempts || !sleep(ctx, pause) {
			return st, &CorruptError{Path: t.dir.Join(file.String()), Cause: cause, Copy: t.keepCopy(file, data, &st)}
		}
	}
}

// restores says whether root's copy of a file replaces it where it is bad. An attachment that can't be
// read is none, and what its environment runs would be ended for it.
func (t *transaction) restores(file state.File) bool {
	return t.access.writable && t.backup != nil && t.backup.contents[file] != nil
}

// keepCopy keeps a copy of a file that can't be read as a whole, and returns its path.
func (t *transaction) keepCopy(file state.File, data []byte, st *unix.Stat_t) string {
	path, _ := t.dir.KeepCopy(file.String(), data, st.Mode, t.local(st.Mtim))
	return path
}

// local is a time of a file in the time zone of the Store's clock.
func (s *Store) local(at unix.Timespec) time.Time {
	return time.Unix(at.Unix()).In(s.Now().Location())
}

// sleep returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
