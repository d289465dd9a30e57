package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Owner is the account for which a process counts: that of its real uid or, as in rootless containers, of the user who
// made its outermost user namespace below our own. If root made that (Docker's userns-remap, systemd's PrivateUsers),
// or the kernel doesn't show it, the real uid counts. The error may wrap ErrAccountUnknown.
func (h *Handle) Owner() (snapshot.UID, error) {
	uid, err := h.RealUID()
	if err != nil {
		return 0, err
	}
	uid, _ = h.OwnerOfUID(uid, h.fs.UserNamespace())
	return h.fs.Account(uid)
}

// UserNamespace names our own user namespace; empty if unreadable.
func (fs FS) UserNamespace() string {
	name, _ := os.Readlink(fs.root() + "/self/ns/user")
	return name
}

// InUserNamespace says whether this process is root only in a user's namespace, as in a rootless container engine:
// there, the owner of "/" is not root.
func InUserNamespace() bool {
	info, err := os.Stat("/")
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Uid != 0
}

// PeerOf returns the process at the other end of a unix socket, according to the kernel.
func PeerOf(conn syscall.RawConn) (peer *unix.Ucred, err error) {
	if controlErr := conn.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); controlErr != nil || err != nil {
		return nil, fmt.Errorf("who is at the other end: %w", errors.Join(controlErr, err))
	}
	return peer, nil
}

// OwnerOfUID finds the uid of Owner's account from the real uid and the name of our user namespace. rootless says that
// this owner made the process's namespace.
func (h *Handle) OwnerOfUID(uid snapshot.UID, ours string) (owner snapshot.UID, rootless bool) {
	if theirs, err := h.link("ns/user"); err != nil || ours == "" || ours == theirs {
		return uid, false
	}
	if owner, ok := h.namespaceOwner(); ok && owner != 0 {
		return owner, true
	}
	return uid, false
}

// Owner is Handle.Owner of one process.
func (fs FS) Owner(pid snapshot.PID) (snapshot.UID, error) { return with(fs, pid, (*Handle).Owner) }

// Requests of ioctl_ns(2), from include/uapi/linux/nsfs.h.
const (
	nsGetParent   = 0xb702
	nsGetOwnerUID = 0xb704
)

const maxNamespaces = 64 // the kernel allows 32 levels of user namespaces (user_namespaces(7))

// namespaceOwner owns the process's outermost user namespace below our own (ioctl_ns(2)).
func (h *Handle) namespaceOwner() (snapshot.UID, bool) {
	own, ok := inodeOf(unix.AT_FDCWD, h.fs.root()+"/self/ns/user")
	if !ok {
		return 0, false
	}
	at, err := soon(h.fs, h.PID, func() (int, error) { return openAt(h.dir, "ns/user", unix.O_RDONLY) })
	if err != nil {
		return 0, false
	}
	defer func() { _ = unix.Close(at) }() // it was only read
	for range maxNamespaces {
		parent, err := unix.IoctlRetInt(at, nsGetParent)
		if err != nil { // it is not below ours
			return 0, false
		}
		if inode, ok := inodeOf(parent, ""); !ok || inode == own {
			_ = unix.Close(parent)
			uid, err := unix.IoctlGetUint32(at, nsGetOwnerUID)
			return snapshot.UID(uid), ok && err == nil
		}
		_ = unix.Close(at)
		at = parent
	}
	return 0, false
}

// inodeOf identifies a namespace, without a name that of the descriptor dir.
func inodeOf(dir int, name string) (uint64, bool) {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_EMPTY_PATH)
	return st.Ino, err == nil
}

// CheckNamespace refuses a /proc of another PID namespace, as in a container with its host's.
func (fs FS) CheckNamespace() error {
	self, err := os.Readlink(filepath.Join(fs.root(), "self"))
	if err != nil {
		return err
	}
	if self != strconv.Itoa(os.Getpid()) {
		return fmt.Errorf("%s is of another PID namespace: mount proc again", fs.root())
	}
	return nil
}

// Namespace names a process's PID namespace (pid_namespaces(7)).
func (fs FS) Namespace(pid snapshot.PID) (string, error) {
	return soon(fs, pid, func() (string, error) { return os.Readlink(fs.path(pid) + "/ns/pid") })
}

// RealUID is the uid of the user who started the process. Set-uid programs only change the effective uid.
func (h *Handle) RealUID() (uid snapshot.UID, err error) {
	status, err := readOnce(h.dir, "status", statusLimit)
	if err == nil {
		uid, err = ParseUID(status)
	}
	if err != nil {
		return 0, h.fs.classify(h.PID, err)
	}
	return uid, nil
}

const statusLimit = 1 << 10 // more than the lines up to the uid; 65,536 groups may follow

// InInnerNamespace says whether the process is in a PID namespace inside that of this /proc. If ns/pid is hidden, the
// status shows it, unless it has many groups.
func (h *Handle) InInnerNamespace() bool {
	theirs, err := h.link("ns/pid")
	if ours, oursErr := os.Readlink(h.fs.root() + "/self/ns/pid"); err == nil && oursErr == nil {
		return theirs != ours
	}
	status, _ := readAt(h.dir, "status", 4*statusLimit) // without it, the process has ended
	return len(statusFields(status, "NSpid:")) > 1      // since Linux 4.1
}

// IsThread says whether a number is a thread's: kill(2) would signal its process.
func (fs FS) IsThread(pid snapshot.PID) (bool, error) {
	status, err := readOnce(unix.AT_FDCWD, fs.path(pid)+"/status", statusLimit)
	if err != nil {
		return false, fs.classify(pid, err)
	}
	group := statusFields(status, "Tgid:")
	return len(group) == 1 && string(group[0]) != strconv.Itoa(int(pid)), nil
}

// UID is Owner without namespaces, which can stall while the process starts a program.
func (h *Handle) UID() (snapshot.UID, error) {
	uid, err := h.RealUID()
	if err != nil {
		return 0, err
	}
	return h.fs.Account(uid)
}

// quotaUser is the account, or while that is unknown the range, for which a process is slow.
func (fs FS) quotaUser(pid snapshot.PID) (snapshot.UID, error) {
	uid, err := with(fs, pid, (*Handle).RealUID)
	if err == nil {
		uid, _ = fs.Account(uid)
	}
	return uid, err
}

// UID is Handle.UID of one process.
func (fs FS) UID(pid snapshot.PID) (snapshot.UID, error) { return with(fs, pid, (*Handle).UID) }

var errStatus = errors.New("no uid in /proc/PID/status")

// ParseUID finds the real uid in /proc/PID/status.
func ParseUID(data []byte) (snapshot.UID, error) {
	fields := statusFields(data, "Uid:")
	if len(fields) != 4 { // real, effective, saved, file system
		return 0, errStatus
	}
	uid, err := strconv.ParseUint(string(fields[0]), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errStatus, err)
	}
	return snapshot.UID(uid), nil
}

// statusFields returns a line's fields, or nil. The kernel escapes newlines in names.
func statusFields(status []byte, key string) [][]byte {
	for line := range bytes.Lines(status) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			return bytes.Fields(rest)
		}
	}
	return nil
}
