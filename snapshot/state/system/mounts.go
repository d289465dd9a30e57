package system

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// mounts are those that this process sees. Their list can be long, and is read again only where the kernel says that
// something was mounted or unmounted. It doesn't say so of options that change through another mount namespace.
type mounts struct {
	mu   sync.Mutex
	file *os.File // nil before the first reading and after one that failed
	list string
}

var ofMachine mounts

// mountsIn is the list of mounts in a /proc file system, as in proc_pid_mountinfo(5).
func mountsIn(procRoot string) (string, error) {
	if root := cmp.Or(procRoot, RealProc); root != RealProc {
		data, err := os.ReadFile(filepath.Join(root, "self/mountinfo"))
		return string(data), err
	}
	return ofMachine.read()
}

func (m *mounts) read() (list string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file != nil && !m.changed() {
		return m.list, nil
	}
	if m.file == nil {
		m.file, err = openUnwatched(RealProc + "/self/mountinfo")
	}
	if err == nil {
		var data []byte
		data, err = io.ReadAll(io.NewSectionReader(m.file, 0, math.MaxInt64))
		m.list = string(data)
	}
	if err != nil {
		_ = m.file.Close() // it was only read
		m.file = nil
	}
	return m.list, err
}

// changed says whether something may have been mounted or unmounted since it was called before, or since the file was opened.
func (m *mounts) changed() bool {
	events := []unix.PollFd{{Fd: int32(m.file.Fd()), Events: unix.POLLPRI}} //nolint:gosec // descriptors are small
	n, err := unix.Poll(events, 0)
	return n != 0 || err != nil
}

// openUnwatched opens a file that Go's runtime doesn't poll, unlike os.Open: the kernel reports each change only once.
func openUnwatched(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// IsPrivate says whether what is mounted at a path is another folder of its file system, as
// PrivateTmp= of systemd and pam_namespace(8) have it for some processes alone. That a subvolume is
// mounted at its own place is usual.
func IsPrivate(procRoot, path string) bool {
	mountinfo, err := mountsIn(procRoot)
	return err == nil && isPrivate(mountinfo, path)
}

func isPrivate(mountinfo, path string) (private bool) {
	for line := range strings.Lines(mountinfo) {
		// 36 35 98:0 /part /point options… - type source options: see proc_pid_mountinfo(5)
		if fields := strings.Fields(line); len(fields) > 6 && fields[4] == path { // the last one covers the others
			private = fields[3] != "/" && !strings.HasSuffix(fields[3], strings.TrimPrefix(path, "/"))
		}
	}
	return private
}

// UsersMount describes a file system that another user than root and the caller has mounted at a
// path or below it, and where; it is empty for none. It doesn't touch the file system, which may
// never answer.
func UsersMount(procRoot, path string) string {
	mountinfo, _ := mountsIn(procRoot) // unknown is none
	return usersMount(mountinfo, path)
}

// escaped is how mountinfo writes paths.
var escaped = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`)

func usersMount(mountinfo, path string) string {
	path = escaped.Replace(path)
	for line := range strings.Lines(mountinfo) {
		if !strings.Contains(line, path) { // most lines are of others, and this is fast
			continue
		}
		mount, kind, _ := strings.Cut(line, " - ")
		at, source := strings.Fields(mount), strings.Fields(kind)
		if len(at) < 5 || len(source) < 3 || at[4] != path && !strings.HasPrefix(at[4], path+"/") {
			continue
		}
		for option := range strings.SplitSeq(source[2], ",") {
			name, value, _ := strings.Cut(option, "=")
			uid, err := strconv.ParseUint(value, 10, 32)
			if err == nil && (name == "user_id" || name == "uid") && uid != 0 && uid != uint64(os.Geteuid()) { // FUSE; tmpfs and others
				return fmt.Sprintf("a %s file system of uid %d is mounted at %s", source[0], uid, at[4])
			}
		}
	}
	return ""
}
