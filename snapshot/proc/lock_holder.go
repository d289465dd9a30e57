package proc

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// LockHolder is a process that holds a lock.
type LockHolder struct {
	PID     snapshot.PID
	Command string        // the command's name; empty if unknown
	UID     *snapshot.UID // nil if unknown
}

// String describes the process for people, also for nil. It quotes the name, which the process chose.
func (p *LockHolder) String() string {
	if p == nil {
		return "a process that cannot be seen from here"
	}
	text := fmt.Sprintf("process %d", p.PID)
	if p.Command == "" && p.UID == nil {
		return text + ", which has ended and left the lock to a child"
	}
	if p.Command != "" {
		text += fmt.Sprintf(" (%q)", p.Command)
	}
	if p.UID != nil {
		text += fmt.Sprintf(" of uid %d", *p.UID)
	}
	return text
}

const maxLocks = 1 << 20 // bytes of /proc/locks to read: users can hold millions of locks

// LockHolderOf returns the holder of a lock on a file, or nil if unknown. root is the mount point of /proc.
func LockHolderOf(root string, st *unix.Stat_t) *LockHolder {
	file, err := os.Open(filepath.Join(root, "locks"))
	if err != nil {
		return nil
	}
	defer file.Close()
	locks, _ := io.ReadAll(io.LimitReader(file, maxLocks)) // unknown is none
	pid := findHolder(string(locks), st)
	if pid <= 0 {
		return nil
	}
	found := &LockHolder{PID: pid}
	fs := FS{Root: root, Reader: &here.lockHolders}
	if stat, err := fs.Stat(pid); err == nil {
		found.Command = stat.Name
	}
	if uid, err := fs.UID(pid); err == nil {
		found.UID = &uid
	}
	return found
}

// findHolder searches /proc/locks (proc_locks(5)):
//
//	1: FLOCK  ADVISORY  WRITE 1234 08:02:131 0 EOF
//
// Lines with "->" are waiting processes. Some file systems (btrfs, overlayfs) show another device than stat(2): without
// a line with both, one with the inode counts.
func findHolder(locks string, st *unix.Stat_t) snapshot.PID {
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
