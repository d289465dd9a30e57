package local

import (
	"os"
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

const (
	mpsServer  = "nvidia-cuda-mps-server"
	mpsControl = "nvidia-cuda-mps-control"
)

const firstPersonUID = 1000 // UID_MIN of login.defs(5); below it are system accounts

// ProtectedName is the name of the daemon (one of enforce.Protected) by which a
// process would be refused, or "" when it would not. It is for snapshots: no
// rule need speak of such a process. Most are a person's and no MPS server, and
// of those nothing more is read.
func (x *Executor) ProtectedName(p *snapshot.Process) string {
	if p.UID == nil || *p.UID >= firstPersonUID && p.Name != "" && p.Name != mpsServer[:proc.NameLength] && p.Name != mpsServer {
		return ""
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unprotected = x.options.Unprotected
	stat, err := x.proc().Stat(p.PID)
	if err != nil {
		return ""
	}
	return x.protectedBy(stat, *p.UID)
}

// protectedBy is the name by which a process is protected, or "".
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
func (x *Executor) protectedBy(stat proc.Stat, uid snapshot.UID) string {
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
	names := enforce.Protected()
	if program := x.proc().Program(stat.PID); slices.Contains(names, program) {
		return program
	}
	for _, name := range names {
		if name[:min(len(name), proc.NameLength)] == stat.Name {
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
	uid, err := x.proc().Owner(pid)
	return err == nil && uid < firstPersonUID && x.nameOf(stat) == mpsControl
}

// sameNamespace says whether a process is in our own PID namespace. Where that
// can't be read we couldn't signal it either, and call it so.
func (x *Executor) sameNamespace(pid snapshot.PID) bool {
	theirs, err := x.proc().Namespace(pid)
	if err != nil {
		return true
	}
	ours, err := x.proc().Namespace(snapshot.PID(os.Getpid()))
	return err != nil || theirs == ours
}
