package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const tempSuffix = ".tmp"

// Staged is a file that is written under a temporary name: see Stage.
type Staged struct {
	Name, temp string
	size       int
}

// Stage writes a file under a temporary name, and syncs it if it is to be durable. The name is always the same, since
// only the holder of the lock writes it; if a user made a folder there, it is another one.
func (d *Folder) Stage(name string, data []byte, mode uint32, durable bool) (Staged, error) {
	file := Staged{Name: name, temp: name + tempSuffix, size: len(data)}
	err := d.Remove(file.temp)
	if errors.Is(err, unix.EISDIR) {
		file.temp, err = name+"."+strconv.FormatUint(rand.Uint64(), 36)+tempSuffix, nil
	}
	if err != nil {
		return file, err
	}
	if err = d.create(file.temp, data, mode, durable); d.Spare && IsFull(err) {
		err = d.useSpare(file, data, mode, err)
	}
	return file, err
}

// Publish gives a staged file its name, and so replaces the file that had it.
func (d *Folder) Publish(file Staged) error {
	if err := unix.Renameat(d.fd, file.temp, d.fd, file.Name); err != nil {
		return &fs.PathError{Op: "replace", Path: d.Join(file.Name), Err: err}
	}
	if d.Spare {
		d.keepSpare(file.Name, file.size)
	}
	return nil
}

// Discard removes staged files that were not published.
func (d *Folder) Discard(files ...Staged) {
	for _, file := range files {
		_ = d.Remove(file.temp)
	}
}

// RemoveLeftovers removes what writers of a file left that were killed. The caller holds its lock.
func (d *Folder) RemoveLeftovers(name string) {
	entries, _ := os.ReadDir(d.Path) // what can't be listed stays
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name+".") && strings.HasSuffix(e.Name(), tempSuffix) {
			_ = d.Remove(e.Name())
		}
	}
}

// Sync makes the published names durable.
func (d *Folder) Sync() error {
	if err := unix.Fsync(d.fd); err != nil {
		return &fs.PathError{Op: "sync the folder", Path: d.Path, Err: err}
	}
	return nil
}

// Put replaces a file as a whole. With durable, it is safe on disk afterwards.
func (d *Folder) Put(name string, data []byte, mode uint32, durable bool) error {
	file, err := d.Stage(name, data, mode, durable)
	if err != nil {
		return err
	}
	if err := d.Publish(file); err != nil {
		d.Discard(file)
		return err
	}
	if !durable {
		return nil
	}
	return d.Sync()
}

// PutJSON is Put with the JSON of v, as one line.
func (d *Folder) PutJSON(name string, v any, mode uint32, durable bool) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return d.Put(name, append(data, '\n'), mode, durable)
}

// RenameCorrupt renames what has a name, without opening or following it, to NAME.corrupt-TIME.
func (d *Folder) RenameCorrupt(name string, now time.Time) error {
	to := name + ".corrupt-" + now.Format("20060102-150405.000000000")
	if err := Ignore(unix.Renameat(d.fd, name, d.fd, to), unix.ENOENT); err != nil {
		return &fs.PathError{Op: "move aside", Path: d.Join(name), Err: err}
	}
	return nil
}

// WriteFile replaces a file at a path as a whole. It is safe on disk afterwards.
func WriteFile(path string, data []byte, mode uint32) error {
	d, err := OpenExisting(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Put(filepath.Base(path), data, mode, true)
}

// Remove removes a file, which may be missing.
func (d *Folder) Remove(name string) error {
	if err := Ignore(unix.Unlinkat(d.fd, name, 0), unix.ENOENT); err != nil {
		return &fs.PathError{Op: "remove", Path: d.Join(name), Err: err}
	}
	return nil
}

// create writes a new file, or removes it. With durable, it is safe on disk afterwards.
func (d *Folder) create(name string, data []byte, mode uint32, durable bool) error {
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(d.fd, name, flags, mode)
	if err != nil {
		return &fs.PathError{Op: "create", Path: d.Join(name), Err: err}
	}
	return d.fill(os.NewFile(uintptr(fd), d.Join(name)), name, data, mode, durable)
}

func (d *Folder) fill(file *os.File, name string, data []byte, mode uint32, durable bool) error {
	_, err := file.Write(data)
	err = errors.Join(err, unix.Fchmod(int(file.Fd()), mode)) // whatever the umask
	if durable && err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		_ = d.Remove(name)
		return fmt.Errorf("write the state: %w", err)
	}
	return nil
}
