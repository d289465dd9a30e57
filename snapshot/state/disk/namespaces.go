package disk

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	link, err := os.Readlink(filepath.Join(p.root, "self/ns", kind))
	if err != nil {
		return 0
	}
	return parseNamespace(link, kind)
}

// parseNamespace returns the inode in a link such as "pid:[4026531836]", or 0.
func parseNamespace(link, kind string) uint64 {
	number, begins := strings.CutPrefix(link, kind+":[")
	number, ends := strings.CutSuffix(number, "]")
	inode, err := strconv.ParseUint(number, 10, 64)
	if !begins || !ends || err != nil {
		return 0
	}
	return inode
}
