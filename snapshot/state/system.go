package state

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Liveness is whether something lives. What cannot be told is Unknown, and nobody
// may conclude from it that it is gone.
type Liveness int

// The three answers.
const (
	Unknown Liveness = iota
	Alive
	Gone
)

// ProcessStatus is what a System tells of a PID.
type ProcessStatus struct {
	Liveness Liveness
	Start    snapshot.StartTime // 0 when not told
	Owner    *snapshot.UID      // nil when not told
}

// System is what a Store asks about the machine on which it runs.
type System interface {
	// BootID is the kernel's id of this boot, or "" when it cannot be told.
	BootID() string
	// Process tells of one process. A zombie is gone.
	Process(pid snapshot.PID) ProcessStatus
	// Kernels tells which Jupyter kernels live.
	Kernels(ids []string) map[string]Liveness
	// Namespaces are those of this process, in which it sees PIDs and uids.
	Namespaces() Namespaces
	// Uptime is the start time that a process would have which started now; 0
	// when not told.
	Uptime() snapshot.StartTime
	// Running lists the living processes of the wanted uids, without zombies
	// and kernel threads. complete is unset where processes may be hidden.
	Running(wanted func(snapshot.UID) bool) (list []RunningProcess, complete bool)
}

// realProc is where the kernel's own /proc is mounted.
const realProc = "/proc"

// NewSystem is the System that a /proc file system describes.
func NewSystem(root string) System { return procfs{root: root, fs: proc.FS{Root: root}} }

type procfs struct {
	root string
	fs   proc.FS
}

func (p procfs) BootID() string {
	id, err := p.fs.BootID()
	if err != nil {
		return ""
	}
	return id
}

// Process reads /proc/PID. Where /proc hides the processes of others (mount
// option hidepid), signal 0 still tells whether there is one.
func (p procfs) Process(pid snapshot.PID) ProcessStatus {
	stat, err := p.fs.Stat(pid)
	switch {
	case errors.Is(err, proc.ErrGone):
		return ProcessStatus{Liveness: Gone}
	case err != nil:
		return ProcessStatus{Liveness: p.signal0(pid)}
	case stat.Gone():
		return ProcessStatus{Liveness: Gone}
	}
	now := ProcessStatus{Liveness: Alive, Start: stat.Start}
	if uid, err := p.fs.UID(pid); err == nil {
		now.Owner = &uid
	}
	return now
}

// signal0 asks the kernel whether there is such a process, which it tells
// everyone: EPERM is a yes.
func (p procfs) signal0(pid snapshot.PID) Liveness {
	if p.root != realProc {
		return Unknown
	}
	switch err := unix.Kill(int(pid), 0); {
	case errors.Is(err, unix.ESRCH):
		return Gone
	case err != nil && !errors.Is(err, unix.EPERM):
		return Unknown
	case ended(pid):
		return Gone
	}
	return Alive
}

// ended says that a process is a zombie, which signal 0 doesn't: its pidfd is
// readable then (pidfd_open(2)).
func ended(pid snapshot.PID) bool {
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	defer func() { _ = unix.Close(fd) }() // nothing was written
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(ready, 0)
	return err == nil && n == 1 && ready[0].Revents&unix.POLLIN != 0
}

// showsAll says whether /proc shows the command lines of every user: that of
// PID 1 can be read only by root, or where /proc hides nothing.
func (p procfs) showsAll() bool {
	_, err := os.ReadFile(filepath.Join(p.root, "1/cmdline"))
	return err == nil
}
