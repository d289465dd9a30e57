package local

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Protected are the daemons that are never signalled, unless Options or the report name them:
// those that carry the machine, our own way in, and NVIDIA's.
//
// A name alone protects nobody. The owner of a process chooses its name
// (prctl(2), or the name of a link to the program), and can also start a true
// /usr/sbin/sshd with code of his own in it (LD_PRELOAD), so neither the name
// nor the program's path may give immunity. What he can't choose is his uid and
// where a container ends. So a name counts only
//   - of a system account (uid below 1000, useradd(8)), by which root's
//     processes and those of nvidia-persistenced and nv-hostengine run,
//   - and in our own PID namespace: in a container everybody can be root;
//   - or of an nvidia-cuda-mps-server whose parent is an
//     nvidia-cuda-mps-control that is itself protected: it starts servers under
//     the uid of the client, and only it decides who its children are. The MPS
//     daemon that a user starts for himself is the user's own.
//
// Whatever the names: PID 1, kernel threads, this process and all it descends
// from are never signalled.
func Protected() []string {
	return []string{
		"systemd", "init", "sshd", "sshd-session", "sshd-auth",
		mpsServer, mpsControl,
		"nvidia-persistenced", "nvidia-fabricmanager", "nv-fabricmanager", "nvidia-imex", "nvidia-powerd",
		"nvidia-gridd", "nvidia-vgpu-mgr", "nvidia-vgpud", "nv-hostengine", "dcgm", "dcgm-exporter",
	}
}

const (
	mpsServer  = "nvidia-cuda-mps-server"
	mpsControl = "nvidia-cuda-mps-control"
)

const (
	firstPersonUID = 1000 // UID_MIN of login.defs(5); below it are system accounts
	maxCommLength  = 15   // TASK_COMM_LEN of include/linux/sched.h, less the NUL
)

// protectedName is the name by which a process is protected, or "".
func (x *Executor) protectedName(stat proc.Stat, uid snapshot.UID) string {
	name := x.nameOf(stat)
	switch {
	case name == "" || slices.Contains(x.unprotected, name) || !x.sameNamespace(stat.PID):
		return ""
	case uid < firstPersonUID:
		return name
	case name == mpsServer && x.isSystemsOwnMPS(stat.PPID):
		return name
	}
	return ""
}

// nameOf is the protected name that a process goes by, or "": that of its
// program, else that of the command, of which the kernel keeps 15 bytes only.
func (x *Executor) nameOf(stat proc.Stat) string {
	program, _ := os.Readlink(x.path(stat.PID, "exe")) // where it can't be read, the command must do
	program = strings.TrimSuffix(filepath.Base(program), " (deleted)")
	names := Protected()
	if slices.Contains(names, program) {
		return program
	}
	for _, name := range names {
		if name[:min(len(name), maxCommLength)] == stat.Name {
			return name
		}
	}
	return ""
}

func (x *Executor) isSystemsOwnMPS(pid snapshot.PID) bool {
	stat, err := x.proc().Stat(pid)
	if err != nil {
		return false
	}
	uid, err := x.proc().UID(pid)
	return err == nil && uid < firstPersonUID && x.nameOf(stat) == mpsControl
}

// sameNamespace says whether a process is in our own PID namespace. Where that
// can't be read we couldn't signal it either, and call it so.
func (x *Executor) sameNamespace(pid snapshot.PID) bool {
	theirs, err := os.Readlink(x.path(pid, "ns/pid"))
	if err != nil {
		return true
	}
	ours, err := os.Readlink(x.path(snapshot.PID(os.Getpid()), "ns/pid"))
	return err != nil || theirs == ours
}

func (x *Executor) path(pid snapshot.PID, name string) string {
	return filepath.Join(x.root(), strconv.Itoa(int(pid)), name)
}
