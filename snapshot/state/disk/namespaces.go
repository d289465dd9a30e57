package disk

import (
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Namespaces are the inodes of the PID namespace and the user namespace of a process:
// PIDs and uids mean something only within them. 0 is unknown.
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
	var st unix.Stat_t
	if unix.Stat(filepath.Join(p.root, "self/ns", kind), &st) != nil {
		return 0
	}
	return st.Ino
}
