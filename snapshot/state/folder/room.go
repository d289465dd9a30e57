package folder

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// IsFull says whether an error means that a file system, or a quota, has no room.
func IsFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// Allocate makes sure that a file can have as many bytes from an offset on. It keeps its size.
func Allocate(file *os.File, offset, bytes int64) error {
	err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_KEEP_SIZE, offset, bytes)
	if err == nil || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return &fs.PathError{Op: "allocate", Path: file.Name(), Err: err}
}

// A spare is an empty file with blocks, which is written instead of a new file on a disk that users have filled.
const (
	spareSuffix = ".spare"
	leastSpare  = 16 << 10 // bytes
)

// keepSpare makes the spare of a file that has a size. What is too small now is larger when there is room.
func (d *Folder) keepSpare(name string, size int) {
	want := 2*int64(size) + leastSpare
	if st, err := d.Stat(name + spareSuffix); err == nil && st.Blocks*512 >= want/2 {
		return
	}
	if fd, err := d.openAt(name, unix.O_WRONLY); err == nil { // it may have been the spare: it needs only its content
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

// useSpare stages a file that there was no room for, in the blocks of its spare. Without one, full is the error.
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

// TryWrite writes a block to a file without a name. Where the file system has none, nothing is tried.
func (d *Folder) TryWrite() error {
	fd, err := unix.Openat(d.fd, ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EISDIR) {
		return nil
	}
	if err == nil {
		_, err = unix.Write(fd, make([]byte, 4<<10))
		err = errors.Join(err, unix.Close(fd))
	}
	if err != nil {
		return &fs.PathError{Op: "write in", Path: d.Path, Err: err}
	}
	return nil
}
