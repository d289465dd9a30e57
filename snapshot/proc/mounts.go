package proc

import (
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mount is a line of a list of mounts.
type Mount struct {
	Device      string // major:minor
	Root, Point string // the file system's folder, and its mount point, as the kernel writes them
	Kind        string
	Options     string // of the file system
}

// ParseMounts parses only lines that contain a text, since parsing all is slow.
func ParseMounts(mountinfo, text string) iter.Seq[Mount] {
	return func(yield func(Mount) bool) {
		for line := range strings.Lines(mountinfo) {
			if !strings.Contains(line, text) {
				continue
			}
			// 36 35 98:0 /root /point options… - type source options
			mount, system, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
			// Users choose sources, which may be empty, and points: only " " is escaped.
			at, of := strings.Split(mount, " "), strings.Split(system, " ")
			if len(at) > 4 && len(of) > 2 && !yield(Mount{at[2], at[3], at[4], of[0], of[2]}) {
				return
			}
		}
	}
}

// Mounts is this namespace's list of mounts (proc_pid_mountinfo(5)), read again when the kernel reports a mount, and
// each minute: options that change through another mount namespace are not reported.
func (fs FS) Mounts() (list string, err error) {
	if fs.root() != machineRoot {
		data, err := os.ReadFile(filepath.Join(fs.root(), "self/mountinfo"))
		return string(data), err
	}
	m := &here.mounts
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file != nil && !mountsChanged(m.file) && time.Since(m.at) < time.Minute {
		return m.list, nil
	}
	if m.file == nil {
		m.file, err = openUnwatched(machineRoot + "/self/mountinfo")
	}
	if err == nil {
		var data []byte
		data, err = io.ReadAll(io.NewSectionReader(m.file, 0, math.MaxInt64))
		m.list, m.at = string(data), time.Now()
	}
	if err != nil {
		_ = m.file.Close() // it was only read
		m.file = nil
	}
	return m.list, err
}

func mountsChanged(file *os.File) bool {
	events := []unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLPRI}} //nolint:gosec // descriptors are small
	n, err := uninterrupted(func() (int, error) { return unix.Poll(events, 0) })
	return n != 0 || err != nil
}

// openUnwatched opens a file outside Go's poller, unlike os.Open: the kernel reports each change only once.
func openUnwatched(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}
