package folder

import (
	"encoding/json"
	"errors"
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

// Staged is a file under a temporary name: see Stage.
type Staged struct {
	Name, temp string
	size       int
}

// Stage writes a file under a temporary name, synced if durable. The name is fixed, as only the lock's holder writes
// it, unless a user made a folder there.
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

// Publish gives a staged file its name.
func (d *Folder) Publish(file Staged) error {
	if err := unix.Renameat(d.fd, file.temp, d.fd, file.Name); err != nil {
		return d.pathError("replace", file.Name, err)
	}
	if d.Spare {
		d.keepSpare(file.Name, file.size)
	}
	return nil
}

// Discard removes unpublished staged files.
func (d *Folder) Discard(files ...Staged) {
	for _, file := range files {
		_ = d.Remove(file.temp)
	}
}

// RemoveLeftovers removes killed writers' temporary files. The lock is held.
func (d *Folder) RemoveLeftovers(name string) {
	entries, _ := os.ReadDir(d.Path) // best effort
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), name+".") && strings.HasSuffix(e.Name(), tempSuffix) {
			_ = d.Remove(e.Name())
		}
	}
}

// Sync makes the published names durable.
func (d *Folder) Sync() error { return d.pathError("sync the folder", "", unix.Fsync(d.fd)) }

// Put replaces a file atomically. With durable it is on disk afterwards.
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

// PutJSON is Put with v as one line of JSON.
func (d *Folder) PutJSON(name string, v any, mode uint32, durable bool) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return d.Put(name, append(data, '\n'), mode, durable)
}

// RenameCorrupt renames a file to NAME.corrupt-TIME, without following it.
func (d *Folder) RenameCorrupt(name string, now time.Time) error {
	to := name + ".corrupt-" + now.Format("20060102-150405.000000000")
	return d.pathError("move aside", name, Ignore(unix.Renameat(d.fd, name, d.fd, to), unix.ENOENT))
}

// WriteFile replaces a file atomically. It is on disk afterwards.
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
	return d.pathError("remove", name, Ignore(unix.Unlinkat(d.fd, name, 0), unix.ENOENT))
}

func (d *Folder) create(name string, data []byte, mode uint32, durable bool) error {
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(d.fd, name, flags, mode)
	if err != nil {
		return d.pathError("create", name, err)
	}
	return d.fill(os.NewFile(uintptr(fd), d.Join(name)), name, data, mode, durable)
}

func (d *Folder) fill(file *os.File, name string, data []byte, mode uint32, durable bool) error {
	_, err := file.Write(data)
	err = errors.Join(err, unix.Fchmod(int(file.Fd()), mode)) // despite the umask
	if durable && err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		_ = d.Remove(name)
		return err
	}
	return nil
}

// IsFull says whether an error means a full file system or quota.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Allocate reserves bytes of a file without changing its size.
func Allocate(file *os.File, offset, bytes int64) error {
	err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, offset, bytes)
	if err == nil || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return &fs.PathError{Op: "allocate", Path: file.Name(), Err: err}
}

// A spare is an empty file with blocks, for writing on a disk that users have filled.
const (
	spareSuffix = ".spare"
	leastSpare  = 16 << 10 // bytes
)

// keepSpare creates a file's spare, smaller if there is no room.
func (d *Folder) keepSpare(name string, size int) {
	want := 2*int64(size) + leastSpare
	if st, err := d.Stat(name + spareSuffix); err == nil && st.Blocks*512 >= want/2 {
		return
	}
	if fd, err := d.openAt(name, unix.O_WRONLY); err == nil { // a former spare has too many blocks
		_ = unix.Ftruncate(fd, int64(size))
		_ = unix.Close(fd)
	}
	const flags = unix.O_CREAT | unix.O_WRONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(d.fd, name+spareSuffix, flags, 0o600)
	if err != nil {
		return
	}
	file := os.NewFile(uintptr(fd), d.Join(name+spareSuffix))
	for ; Allocate(file, 0, want) != nil && want > 1; want /= 2 {
	}
	_ = file.Close() // nothing was written
}

// useSpare stages a file in its spare, or returns full.
func (d *Folder) useSpare(file Staged, data []byte, mode uint32, full error) error {
	st, err := d.Stat(file.Name + spareSuffix)
	if err != nil || st.Size != 0 || st.Blocks*512 < int64(len(data)) {
		return full
	}
	if err := unix.Renameat(d.fd, file.Name+spareSuffix, d.fd, file.temp); err != nil {
		return full
	}
	fd, err := d.openAt(file.temp, unix.O_WRONLY)
	if err != nil {
		return full
	}
	return d.fill(os.NewFile(uintptr(fd), d.Join(file.temp)), file.temp, data, mode, true)
}

// TryWrite writes a block to an unnamed file, if the file system has that.
func (d *Folder) TryWrite() error {
	fd, err := unix.Openat(d.fd, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		return nil
	}
	if err == nil {
		_, err = unix.Write(fd, make([]byte, 4<<10))
		err = errors.Join(err, unix.Close(fd))
	}
	return d.pathError("write in", "", err)
}
