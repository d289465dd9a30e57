package proc

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// Owner is the user that a process counts for: its real uid (see UID), or, in a
// user namespace that a user made, that user. Rootless containers run under the
// uids of /etc/subuid, which belong to no account: otherwise one user could count
// as many.
//
// Of namespaces in namespaces the outermost below our own counts: its owner is
// a user of this machine. If that is root (Docker's userns-remap, systemd's
// PrivateUsers), root has chosen the uids, and the real uid counts. It counts as
// well where the kernel doesn't let us look.
func (h *Handle) Owner() (snapshot.UID, error) {
	uid, err := h.UID()
	if err != nil {
		return 0, err
	}
	return h.OwnerOfUID(uid, h.fs.UserNamespace()), nil
}

// UserNamespace names our own user namespace; empty when it can't be read.
func (fs FS) UserNamespace() string {
	name, err := os.Readlink(fs.root() + "/self/ns/user")
	if err != nil {
		return ""
	}
	return name
}

// OwnerOfUID is Owner of a process with this real uid, by the name of our own
// user namespace.
func (h *Handle) OwnerOfUID(uid snapshot.UID, ours string) snapshot.UID {
	theirs, err := h.link("ns/user")
	if err != nil || ours == "" || ours == theirs {
		return uid
	}
	if owner, ok := h.namespaceOwner(); ok && owner != 0 {
		return owner
	}
	return uid
}

// Owner is the user that one process counts for.
func (fs FS) Owner(pid snapshot.PID) (snapshot.UID, error) {
	return with(fs, pid, (*Handle).Owner)
}

// The requests of ioctl_ns(2), from include/uapi/linux/nsfs.h.
const (
	nsGetParent   = 0xb702
	nsGetOwnerUID = 0xb704
)

// maxNamespaces is more than the 32 levels of user namespaces that the kernel
// allows (user_namespaces(7)).
const maxNamespaces = 64

// namespaceOwner is the owner of the outermost user namespace below our own
// that the process is in (ioctl_ns(2)).
func (h *Handle) namespaceOwner() (snapshot.UID, bool) {
	own, ok := inodeOf(unix.AT_FDCWD, h.fs.root()+"/self/ns/user")
	if !ok {
		return 0, false
	}
	at, err := openAt(h.dir, "ns/user", unix.O_RDONLY)
	if err != nil {
		return 0, false
	}
	defer func() { _ = unix.Close(at) }() // it was only asked
	for range maxNamespaces {
		parent, err := unix.IoctlRetInt(at, nsGetParent)
		if err != nil { // it is not below ours
			return 0, false
		}
		inode, ok := inodeOf(parent, "")
		if !ok || inode == own {
			_ = unix.Close(parent)
			return namespaceUID(at), ok
		}
		_ = unix.Close(at)
		at = parent
	}
	return 0, false
}

func namespaceUID(fd int) snapshot.UID {
	uid, err := unix.IoctlGetUint32(fd, nsGetOwnerUID)
	if err != nil {
		return 0 // as if it were root's: the real uid counts
	}
	return snapshot.UID(uid)
}

// inodeOf is the inode of a namespace, which is its identity: of the descriptor
// dir where name is empty.
func inodeOf(dir int, name string) (uint64, bool) {
	var st unix.Stat_t
	var err error
	if name == "" {
		err = unix.Fstat(dir, &st)
	} else {
		err = unix.Fstatat(dir, name, &st, 0)
	}
	return st.Ino, err == nil
}
