package state

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// tempSuffix ends the name of a file that is being written.
const tempSuffix = ".tmp"

// staged is a file that is written and synced under another name.
type staged struct{ name, temp string }

// save writes what is different from what was loaded: first all files under
// other names, then, when all of them are safe on disk, one after the other in
// place. envs.json comes first: if we are killed between the two, what is left
// are attachments of an environment that does not exist, which the next reader
// drops, never an environment that lost what it held.
//
// It returns what the files hold then; devices is nil for no file.
func (s *Store) save(dir *folder, old *loaded, books *Files) (envs, devices []byte, err error) {
	envs, err = snapshot.EncodeEnvironments(books.Environments)
	if err != nil {
		return nil, nil, err
	}
	contents := []content{{envsFile, old.envs, envs}}
	if books.Devices != nil {
		devices, err = snapshot.EncodeDevices(books.Devices)
		if err != nil {
			return nil, nil, err
		}
		contents = append(contents, content{devicesFile, old.devices, devices})
	}
	contents = slices.DeleteFunc(contents, content.same)
	if err := checkReadable(contents); err != nil {
		return nil, nil, &writeError{err}
	}
	return envs, devices, s.replace(dir, contents)
}

// content is what a file holds (nil for no file) and is to hold.
type content struct {
	name     string
	old, new []byte
}

func (c content) same() bool { return c.old != nil && bytes.Equal(c.old, c.new) }

// checkReadable refuses what could not be read again: nothing that gets into
// the state files may make them corrupt.
func checkReadable(contents []content) error {
	for _, c := range contents {
		if len(c.new) > maxFileSize {
			return fmt.Errorf("%w: %s would be larger than %d MiB", ErrRequest, c.name, maxFileSize>>20)
		}
		var err error
		if c.name == envsFile {
			_, err = decodeEnvironments(c.new)
		} else {
			_, err = decodeDevices(c.new)
		}
		if err != nil {
			return fmt.Errorf("refused to write %s: %w", c.name, err)
		}
	}
	return nil
}

// replace writes the files, all of them or none.
func (s *Store) replace(dir *folder, contents []content) error {
	var files []staged
	for _, c := range contents {
		file, err := s.stage(dir, c.name, c.new)
		if err != nil {
			dir.discard(files)
			return &writeError{err}
		}
		files = append(files, file)
	}
	if err := s.commit(dir, files); err != nil {
		return &writeError{err}
	}
	return nil
}

// writeError is a state that could be read but not written.
type writeError struct{ error }

func (e *writeError) Unwrap() error { return e.error }

// stage writes a file under another name and syncs it. The name is always the
// same: only the holder of the lock writes it, so one that is there already was
// left by a writer that was killed. A folder in its place was put there to keep
// us from writing.
func (s *Store) stage(dir *folder, name string, data []byte) (staged, error) {
	file := staged{name: name, temp: name + tempSuffix}
	err := dir.remove(file.temp)
	if errors.Is(err, unix.EISDIR) {
		file.temp, err = name+"."+strconv.FormatUint(rand.Uint64(), 36)+tempSuffix, nil
	}
	if err != nil {
		return file, err
	}
	err = dir.create(file.temp, data, sharedMode, true)
	s.step("staged " + name)
	return file, err
}

// commit moves staged files in place and syncs the folder.
func (s *Store) commit(dir *folder, files []staged) error {
	for i, file := range files {
		if err := unix.Renameat(dir.fd, file.temp, dir.fd, file.name); err != nil {
			dir.discard(files[i:])
			return &fs.PathError{Op: "replace", Path: dir.join(file.name), Err: err}
		}
		s.step("renamed " + file.name)
	}
	if len(files) == 0 {
		return nil
	}
	if err := unix.Fsync(dir.fd); err != nil {
		return &fs.PathError{Op: "sync the folder", Path: dir.path, Err: err}
	}
	s.step("synced")
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

// create writes a new file, and syncs it where that matters; what it
// could not write whole it takes away again.
func (d *folder) create(name string, data []byte, mode uint32, sync bool) error {
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(d.fd, name, flags, 0o600)
	if err != nil {
		return &fs.PathError{Op: "make", Path: d.join(name), Err: err}
	}
	file := os.NewFile(uintptr(fd), d.join(name))
	_, err = file.Write(data)
	err = errors.Join(err, unix.Fchmod(fd, mode))
	if sync && err == nil {
		err = file.Sync()
	}
	err = errors.Join(err, file.Close())
	if err != nil {
		_ = d.remove(name)
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}
