package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Namespaces are the PID and the user namespace that a process is in, by their
// inodes: PIDs and uids mean something only within them. 0 where not told.
type Namespaces struct {
	PID  uint64 `json:"pid_namespace"`
	User uint64 `json:"user_namespace"`
}

// The initial namespaces have fixed inodes: PROC_PID_INIT_INO and
// PROC_USER_INIT_INO of include/linux/proc_ns.h.
const (
	initialPID  = 0xEFFFFFFC
	initialUser = 0xEFFFFFFD
)

func (n Namespaces) known() bool { return n.PID != 0 && n.User != 0 }

func (n Namespaces) initial() bool { return n.PID == initialPID && n.User == initialUser }

// Namespaces reads /proc/self/ns.
func (p procfs) Namespaces() Namespaces {
	return Namespaces{PID: p.namespace("pid"), User: p.namespace("user")}
}

func (p procfs) namespace(kind string) uint64 {
	link, err := os.Readlink(filepath.Join(p.root, "self/ns", kind))
	if err != nil {
		return 0
	}
	return parseNamespace(link, kind)
}

// parseNamespace reads a link such as "pid:[4026531836]"; 0 where it is none.
func parseNamespace(link, kind string) uint64 {
	number, ok := strings.CutPrefix(link, kind+":[")
	if !ok {
		return 0
	}
	number, ok = strings.CutSuffix(number, "]")
	inode, err := strconv.ParseUint(number, 10, 64)
	if !ok || err != nil {
		return 0
	}
	return inode
}

// note says to which boot and namespaces the PIDs of a state folder belong.
type note struct {
	Path   string `json:"path"`
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	BootID string `json:"boot_id"`
	Namespaces
}

// view is what this genv may do with a state folder.
type view struct {
	// clean says that the PIDs in the files are those of our own namespaces, so
	// that what is dead may be dropped.
	clean bool
	// root is the folder of root's notes about this one, nil where there is none.
	// writable says that this genv keeps the notes up to date.
	root     *folder
	writable bool
	// warning says why clean is false.
	warning string
	// foreign says that it is root's note which names other namespaces.
	foreign bool
}

func (v *view) close() {
	if v.root != nil {
		v.root.close()
	}
}

// look finds out what this genv may do with the open state folder, and keeps
// root's notes about it up to date. With force, root claims the folder for its
// own namespaces whatever the notes say.
func (s *Store) look(dir *folder, force bool) view {
	if s.root == "" {
		return view{clean: true}
	}
	var st unix.Stat_t
	if err := unix.Fstat(dir.fd, &st); err != nil {
		return view{warning: s.unclean(dir, err.Error())}
	}
	now := note{Path: s.path(), Device: st.Dev, Inode: st.Ino, BootID: s.machine.BootID(), Namespaces: s.machine.Namespaces()}
	root, err := s.openRoot()
	if err != nil {
		return view{warning: s.unclean(dir, err.Error())}
	}
	v := view{root: root, writable: root != nil && root.mine()}
	if why := now.refused(v, readNote(root, rootNote), readNote(dir, folderNote), rootDevice(s.root)); why != "" && !(force && v.writable && now.known()) {
		v.warning = s.unclean(dir, why)
		v.writable = false
		outside := readNote(root, rootNote)
		v.foreign = outside != nil && outside.BootID == now.BootID && now.known() && outside.PID != now.PID
		return v
	}
	v.clean = true
	if v.writable {
		v.writable = writeNote(root, rootNote, now, 0o644) == nil
		_ = writeNote(dir, folderNote, now, sharedMode) // without it, a container only knows less
	}
	return v
}

// claimIt is the next step when the notes are about another PID namespace.
const claimIt = "; where no other machine or container uses it, `sudo genv envs --reset` starts it over for this one"

// refused says why the PIDs in the files may not be those of our namespaces, or
// "". Only root's note, outside, allows; the one inside, which any user may
// write, can only forbid, and doesn't forbid root anything in the initial
// namespaces or those of root's note.
func (n note) refused(v view, outside, inside *note, rootDevice uint64) string {
	if outside != nil && outside.BootID != n.BootID {
		outside = nil // what it says ended with that boot
	}
	if inside != nil && inside.BootID != n.BootID {
		inside = nil
	}
	ours := outside != nil && outside.Device == n.Device && outside.Inode == n.Inode
	switch {
	case !n.known():
		return "/proc doesn't show the namespaces of this process"
	case ours && outside.Namespaces == n.Namespaces:
		return ""
	case ours, outside != nil && outside.Namespaces != n.Namespaces && !n.initial():
		return fmt.Sprintf("they belong to PID namespace %d, and this is %d"+claimIt, outside.PID, n.PID)
	case v.writable && (n.initial() || outside != nil):
		return "" // whoever replaces the folder may write any note into it
	case inside != nil && inside.Namespaces != n.Namespaces && inside.Device == n.Device && inside.Inode == n.Inode:
		return fmt.Sprintf("they belong to PID namespace %d, as %s says, and this is %d"+claimIt, inside.PID, folderNote, n.PID)
	case n.initial():
		return ""
	case !v.writable:
		return "this is not the initial PID namespace, and root's genv has not run here yet: have root run `genv envs` once"
	case rootDevice == 0 || rootDevice != n.Device:
		return "this is not the initial PID namespace, and the folder is not on this container's own file system" + claimIt
	}
	return ""
}

func (s *Store) unclean(dir *folder, why string) string {
	return fmt.Sprintf("%s: nothing was cleaned up, since it is not known whether its processes live: %s", dir.path, why)
}
