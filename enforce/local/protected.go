package local

import (
	"os"
	"slices"

	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

const (
	mpsServer  = "nvidia-cuda-mps-server"
	mpsControl = "nvidia-cuda-mps-control"
)

// ProtectedName is the daemon's name (of safety.Protected) for which a process is never signalled, or "", so that no
// rule reports it. Of a person's process that isn't an MPS server, nothing more is read.
func (x *Executor) ProtectedName(p *snapshot.Process) string {
	if p.UID == nil || *p.UID >= system.FirstUID() && p.Name != "" && p.Name != mpsServer[:proc.NameLength] &&
		p.Name != mpsServer {
		return ""
	}
	stat, err := x.proc().Stat(p.PID)
	if err != nil {
		return ""
	}
	return x.protectedBy(stat, *p.UID, x.options.Unprotected)
}

// protectedBy is the name for which a process is protected, unless it is one of the names in unprotected, or "".
//
// A name alone protects nothing. The owner of a process chooses its name (prctl(2), or the name of a link to the
// program), and can also start the real /usr/sbin/sshd with other code in it (LD_PRELOAD), so neither the name nor the
// program's path may give immunity. The owner can't choose the uid, and can't leave a container. So a name counts only
//   - for a system account (see system.FirstUID), such as root and those
//     of nvidia-persistenced and nv-hostengine,
//   - in our own PID namespace, since any user can be root in a container;
//   - or for an nvidia-cuda-mps-server with a protected nvidia-cuda-mps-control
//     as its parent, which starts servers under the uid of the client. The client
//     can have its server run another program (ptrace(2)), so it counts only with
//     the one that is installed. An MPS daemon that a user starts is not protected.
func (x *Executor) protectedBy(stat proc.Stat, uid snapshot.UID, unprotected []string) string {
	name := x.nameOf(stat)
	switch {
	case name == "" || slices.Contains(unprotected, name) || !x.sameNamespace(stat.PID):
		return ""
	case uid < system.FirstUID():
		return name
	case name == mpsServer && x.isSystemMPS(stat):
		return name
	}
	return ""
}

// nameOf is the protected name that a process has, or "": that of its program,
// else that of its command, of which the kernel keeps 15 bytes only.
func (x *Executor) nameOf(stat proc.Stat) string {
	names := safety.Protected()
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

func (x *Executor) isSystemMPS(server proc.Stat) bool {
	control, err := x.proc().Stat(server.PPID)
	if err != nil {
		return false
	}
	uid, err := x.proc().Owner(control.PID)
	return err == nil && uid < system.FirstUID() && x.nameOf(control) == mpsControl &&
		x.proc().IsInstalledWith(control.PID, mpsServer, server.PID)
}

// sameNamespace says whether a process is in our own PID namespace. If that can't
// be read, we couldn't signal the process either, and the answer is yes.
func (x *Executor) sameNamespace(pid snapshot.PID) bool {
	theirs, err := x.proc().Namespace(pid)
	if err != nil {
		return true
	}
	ours, err := x.proc().Namespace(snapshot.PID(os.Getpid()))
	return err != nil || theirs == ours
}
