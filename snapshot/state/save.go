package state

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// tempSuffix ends the name of a file that is being written.
const tempSuffix = ".tmp"

// staged is a file that is written and synced under a temporary name.
type staged struct{ name, temp string }

// writeError means that the state could be read but not written.
type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }

// writeChanges writes the files that differ from what was loaded, and returns the
// contents that both have then.
func (t *transaction) writeChanges() (next contents, err error) {
	var changed contents
	for _, file := range stateFiles {
		if next[file], err = t.files.encode(file); err != nil {
			return next, err
		}
		if next[file] == nil || same(next[file], t.onDisk[file]) {
			continue
		}
		if err := checkReadable(file, next[file]); err != nil {
			return next, &writeError{err}
		}
		changed[file] = next[file]
	}
	return next, t.replace(changed)
}

// checkReadable refuses contents that could not be read again: no request may make
// the state files corrupt.
func checkReadable(file stateFile, data []byte) error {
	if len(data) > maxFileSize {
		return fmt.Errorf("%w: %s would be larger than %d MiB", ErrRequest, file, maxFileSize>>20)
	}
	if err := new(Files).decode(file, data); err != nil {
		return fmt.Errorf("refused to write %s: %w", file, err)
	}
	return nil
}

// replace writes the files that are not nil, all of them or none: first under
// temporary names, then, when all are safe on disk, it renames one after the
// other. envs.json comes first: if genv is killed between the two, there are
// attachments of an environment that does not exist, which the next reader
// removes, but never an environment without its attachments.
func (t *transaction) replace(next contents) error {
	var files []staged
	for _, file := range stateFiles {
		if next[file] == nil {
			continue
		}
		s, err := t.dir.stage(file.String(), next[file], sharedMode, true)
		t.step("staged " + file.String())
		if err != nil {
			t.dir.discard(files)
			return &writeError{err}
		}
		files = append(files, s)
	}
	if err := t.commit(files); err != nil {
		return &writeError{err}
	}
	return nil
}

// commit renames staged files and syncs the folder.
func (t *transaction) commit(files []staged) error {
	for i, file := range files {
		if err := unix.Renameat(t.dir.fd, file.temp, t.dir.fd, file.name); err != nil {
			t.dir.discard(files[i:])
			return &fs.PathError{Op: "replace", Path: t.dir.join(file.name), Err: err}
		}
		t.step("renamed " + file.name)
	}
	if len(files) == 0 {
		return nil
	}
	if err := unix.Fsync(t.dir.fd); err != nil {
		return &fs.PathError{Op: "sync the folder", Path: t.dir.path, Err: err}
	}
	t.step("synced")
	return nil
}

func (d *folder) discard(files []staged) {
	for _, file := range files {
		_ = d.remove(file.temp)
	}
}

func (d *folder) remove(name string) error {
	if err := ignore(unix.Unlinkat(d.fd, name, 0), unix.ENOENT); err != nil {
		return &fs.PathError{Op: "remove", Path: d.join(name), Err: err}
	}
	return nil
}

// create writes a new file. If it fails, it removes the incomplete file. With
// durable, the content is safe on disk afterwards.
func (d *folder) create(name string, data []byte, mode uint32, durable bool) error {
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(d.fd, name, flags, 0o600)
	if err != nil {
		return &fs.PathError{Op: "create", Path: d.join(name), Err: err}
	}
	file := os.NewFile(uintptr(fd), d.join(name))
	_, err = file.Write(data)
	err = errors.Join(err, unix.Fchmod(fd, mode))
	if durable && err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		_ = d.remove(name)
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}

// stage writes a file under a temporary name. The name is always the same: only the
// holder of the lock writes it, so an existing file was left by a writer that was
// killed. A folder in its place was made by a user to prevent writing, and another
// name is used.
func (d *folder) stage(name string, data []byte, mode uint32, durable bool) (staged, error) {
	file := staged{name: name, temp: name + tempSuffix}
	err := d.remove(file.temp)
	if errors.Is(err, unix.EISDIR) {
		file.temp, err = name+"."+strconv.FormatUint(rand.Uint64(), 36)+tempSuffix, nil
	}
	if err != nil {
		return file, err
	}
	return file, d.create(file.temp, data, mode, durable)
}

// put replaces a file as a whole. With durable, it is safe on disk afterwards.
func (d *folder) put(name string, data []byte, mode uint32, durable bool) error {
	file, err := d.stage(name, data, mode, durable)
	if err != nil {
		return err
	}
	if err := unix.Renameat(d.fd, file.temp, d.fd, name); err != nil {
		_ = d.remove(file.temp)
		return &fs.PathError{Op: "replace", Path: d.join(name), Err: err}
	}
	if !durable {
		return nil
	}
	return unix.Fsync(d.fd)
}
