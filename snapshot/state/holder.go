package state

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Holder is who holds a lock.
type Holder struct {
	PID     snapshot.PID
	Command string        // the command's name; empty when it cannot be told
	UID     *snapshot.UID // nil when it cannot be told
}

// String is the holder for people. The command's name is the process's own
// choice, so it is quoted.
func (h *Holder) String() string {
	text := fmt.Sprintf("process %d", h.PID)
	if h.Command == "" && h.UID == nil {
		return text + ", which has ended and left the lock to a child"
	}
	if h.Command != "" {
		text += fmt.Sprintf(" (%q)", h.Command)
	}
	if h.UID != nil {
		text += fmt.Sprintf(" of uid %d", *h.UID)
	}
	return text
}

// holderOf finds who holds a flock on a file, or nil.
func holderOf(root string, st *unix.Stat_t) *Holder {
	locks, err := os.ReadFile(filepath.Join(root, "locks"))
	if err != nil {
		return nil
	}
	pid := lockOwner(string(locks), st)
	if pid <= 0 {
		return nil
	}
	holder := &Holder{PID: pid}
	fs := proc.FS{Root: root}
	if stat, err := fs.Stat(pid); err == nil {
		holder.Command = stat.Name
	}
	if uid, err := fs.UID(pid); err == nil {
		holder.UID = &uid
	}
	return holder
}

// lockOwner finds the holder of a flock in /proc/locks (proc_locks(5)):
//
//	1: FLOCK  ADVISORY  WRITE 1234 08:02:131 0 EOF
//
// Lines with "->" are processes that wait. Some file systems (btrfs, overlayfs)
// show another device there than stat(2) does, so one lock on the inode alone
// will do where none is on both.
func lockOwner(locks string, st *unix.Stat_t) snapshot.PID {
	inode := strconv.FormatUint(st.Ino, 10)
	device := fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev))
	var near snapshot.PID
	for line := range strings.Lines(locks) {
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" {
			continue
		}
		dev, same := strings.CutSuffix(f[5], ":"+inode)
		pid, err := strconv.ParseInt(f[4], 10, 32)
		if err != nil || !same {
			continue
		}
		if dev == device {
			return snapshot.PID(pid)
		}
		near = snapshot.PID(pid)
	}
	return near
}
