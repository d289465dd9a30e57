package proc

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

var (
	// ErrGone says that the process has ended, or never existed.
	ErrGone = errors.New("the process has ended")
	// ErrUnreadable says that the process may exist, but the kernel doesn't show the file.
	ErrUnreadable = errors.New("the process cannot be read")
)

// Limits of files in bytes.
const (
	smallLimit   = 64 << 10 // most files of /proc are shorter than a page
	environLimit = 8 << 20  // execve(2) allows 6 MiB for arguments and environment together
	// MaxEnviron limits environments. A larger one needs a raised stack limit (execve(2)).
	MaxEnviron = 2 << 20
)

// FS is a mounted /proc file system.
type FS struct {
	Root     string         // its mount point; empty for /proc
	Reader   *ReaderProcess // reads what users can make large or slow; nil to read it here
	Accounts *Accounts      // nil for this machine's
}

// Account is Accounts.Of.
func (fs FS) Account(uid snapshot.UID) (snapshot.UID, error) { return fs.AllAccounts().Of(uid) }

// AllAccounts returns the accounts of the uids.
func (fs FS) AllAccounts() *Accounts {
	if fs.Accounts == nil {
		return &here.accounts
	}
	return fs.Accounts
}

// here caches facts about this machine for every FS of its /proc.
var here struct {
	accounts Accounts
	mounts   struct {
		mu   sync.Mutex
		file *os.File // nil before the first and after a failed reading
		list string
		at   time.Time // when it was read
	}
	bootID atomic.Pointer[string] // nil before the first reading
	// lockHolders remembers processes that don't answer: reading the stat during execve(2) can block for ever.
	lockHolders ReaderProcess
}

const machineRoot = "/proc"

func (fs FS) root() string { return cmp.Or(fs.Root, machineRoot) }

// Handle is one process, also after its PID is reused. It is not safe for concurrent use.
type Handle struct {
	PID   snapshot.PID
	Quota *Quota // of its account; nil for none
	fs    FS
	dir   int // descriptor of /proc/PID, of this process only
}

// Open opens a process. Its error wraps ErrGone or ErrUnreadable.
func (fs FS) Open(pid snapshot.PID) (*Handle, error) {
	if pid <= 0 {
		return nil, fmt.Errorf("%w: %d is not a PID", ErrGone, pid)
	}
	dir, err := openAt(unix.AT_FDCWD, fs.path(pid), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, fs.classify(pid, err)
	}
	return &Handle{PID: pid, fs: fs, dir: dir}, nil
}

// PIDs lists the processes.
func (fs FS) PIDs() (pids []snapshot.PID, err error) {
	entries, err := os.ReadDir(fs.root())
	for _, e := range entries {
		if pid, err := strconv.ParseInt(e.Name(), 10, 32); err == nil {
			pids = append(pids, snapshot.PID(pid))
		}
	}
	return pids, err
}

// FolderOwner is the account that owns the process's folder: that of its effective uid, or root.
func (fs FS) FolderOwner(pid snapshot.PID) (snapshot.UID, error) {
	var st unix.Stat_t
	if err := unix.Stat(fs.path(pid), &st); err != nil {
		return 0, err
	}
	return fs.Account(snapshot.UID(st.Uid))
}

func (fs FS) path(pid snapshot.PID) string { return fs.root() + "/" + strconv.Itoa(int(pid)) }

// Close closes the handle.
func (h *Handle) Close() error { return unix.Close(h.dir) }

func readAt(dir int, name string, limit int) ([]byte, error) {
	return readTimes(dir, name, limit, math.MaxInt)
}

// readOnce is readAt for stat and status: one read returns as much as fits.
func readOnce(dir int, name string, limit int) ([]byte, error) { return readTimes(dir, name, limit, 1) }

// readTimes limits the reads. It doesn't use os.File, which makes twice as many system calls: a host reads dozens of
// these files in each cycle.
func readTimes(dir int, name string, limit, times int) ([]byte, error) {
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()          // it was only read
	data := make([]byte, 0, min(limit, statLimit)) // enough for most files
	for ; len(data) < limit && times > 0; times-- {
		if len(data) == cap(data) {
			data = slices.Grow(data, cap(data))
		}
		n, err := uninterrupted(func() (int, error) { return unix.Read(fd, data[len(data):min(cap(data), limit)]) })
		if err != nil {
			return nil, &os.PathError{Op: "read", Path: name, Err: err}
		}
		if n == 0 {
			break
		}
		data = data[:len(data)+n]
	}
	return data, nil
}

func openAt(dir int, name string, flags int) (int, error) {
	fd, err := uninterrupted(func() (int, error) { return unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0) })
	if err != nil {
		return fd, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return fd, nil
}

// namesIn lists at most that many names in a folder; -1 lists all.
func namesIn(dir int, name string, most int) ([]string, error) {
	fd, err := openAt(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	folder := os.NewFile(uintptr(fd), name)
	defer folder.Close()
	return folder.Readdirnames(most)
}

// uninterrupted repeats a system call that a signal interrupted. Go's runtime sends signals to itself.
func uninterrupted(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

func (h *Handle) link(name string) (string, error) {
	target, err := soon(h.fs, h.PID, func() (string, error) {
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(h.dir, name, target)
		return string(target[:max(n, 0)]), err
	})
	if err != nil {
		return "", h.fs.classify(h.PID, err)
	}
	return target, nil
}

// classify wraps ErrGone or ErrUnreadable around an error. With hidepid=2, processes of others look ended; so does PID
// 1, which always runs. ESRCH only comes from ended ones.
func (fs FS) classify(pid snapshot.PID, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		if _, statErr := os.Stat(filepath.Join(fs.root(), "1")); statErr != nil {
			return fmt.Errorf("%w: PID %d: %s hides the processes of others (hidepid); run it as root", ErrUnreadable,
				pid, fs.root())
		}
		return fmt.Errorf("%w: PID %d", ErrGone, pid)
	}
	if errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("%w: PID %d", ErrGone, pid)
	}
	return fmt.Errorf("%w: PID %d: %w", ErrUnreadable, pid, err)
}

// BootID is /proc/sys/kernel/random/boot_id. Start times only compare within one boot.
func (fs FS) BootID() (string, error) {
	if id := here.bootID.Load(); id != nil && fs.root() == machineRoot {
		return *id, nil
	}
	path := filepath.Join(fs.root(), "sys/kernel/random/boot_id")
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	id := strings.TrimSpace(string(data))
	if !bootID().MatchString(id) {
		return "", fmt.Errorf("read the boot id: %s does not contain one", path)
	}
	if fs.root() == machineRoot {
		here.bootID.Store(&id)
	}
	return id, nil
}

var bootID = text.Pattern(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// HasEnded says whether a pidfd's process has ended or is a zombie: then the pidfd is readable (pidfd_open(2)). An
// error means unknown.
func HasEnded(pidfd int) (bool, error) {
	ready := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // descriptors are small
	n, err := uninterrupted(func() (int, error) { return unix.Poll(ready, 0) })
	if n > 0 && ready[0].Revents&unix.POLLIN == 0 { // POLLNVAL, POLLERR
		err = unix.EBADF
	}
	return err == nil && n > 0, os.NewSyscallError("poll", err)
}

// Hiding says whether /proc hides the processes of other users: its options hidepid and gid (proc(5)).
type Hiding struct {
	On    bool
	Group string // the gid that sees all; empty for none
}

// Hiding returns this host's. An error counts as hidden.
func (fs FS) Hiding() Hiding {
	mounts, err := fs.Mounts()
	if err != nil {
		return Hiding{On: true}
	}
	return ParseHiding(mounts)
}

// ParseHiding reads the options of /proc in /proc/PID/mountinfo.
func ParseHiding(mountinfo string) (h Hiding) {
	for m := range ParseMounts(mountinfo, " /proc ") {
		if m.Point != "/proc" || m.Kind != "proc" {
			continue
		}
		h = Hiding{} // the last mount covers the others
		for option := range strings.SplitSeq(m.Options, ",") {
			switch name, value, _ := strings.Cut(option, "="); name {
			case "hidepid": // a number before Linux 5.8
				h.On = value != "0" && value != "off"
			case "gid":
				h.Group = value
			}
		}
	}
	return h
}
