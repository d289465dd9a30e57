package service

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// callerProcess is the process at the other end of a connection, as the kernel reports it.
type callerProcess struct {
	uid       snapshot.UID
	owner     snapshot.UID // who made its user namespace, or its own uid
	account   snapshot.UID // of the owner, who may have many uids
	groups    []uint32     // as far as they are known
	pid       snapshot.PID
	unknown   error             // why the PIDs that the process names may mean nothing here, or nil
	contained bool              // an engine of root's, or an image, chose the uid: it proves nothing
	name      snapshot.Username // of the account, if known already
}

// isRoot says whether it is root on the host itself, or this user on a simulated host.
func (p *callerProcess) isRoot() bool { return int(p.uid) == os.Geteuid() && p.unknown == nil }

// reserver is who changes reservations: 0 for root, who changes those of others.
func (p *callerProcess) reserver() snapshot.UID {
	if p.isRoot() {
		return 0
	}
	return p.account
}

var errForeign = errors.New("the process that asks is in another PID namespace (a container): it can't register " +
	"PIDs; run genv on the host itself")

var errContained = fmt.Errorf("%w: the process that asks is in a container, of which the uid proves no user: run "+
	"genv on the host itself", state.ErrNotOwner)

var errPeerGone = errors.New("the process that asked has ended")

func credentialsOf(conn *net.UnixConn) (p callerProcess, raw syscall.RawConn, err error) {
	if raw, err = conn.SyscallConn(); err != nil {
		return p, nil, err
	}
	credentials, err := proc.PeerOf(raw)
	if err != nil {
		return p, nil, err
	}
	uid := snapshot.UID(credentials.Uid)
	return callerProcess{
		uid: uid, owner: uid, account: uid, groups: []uint32{credentials.Gid}, pid: snapshot.PID(credentials.Pid),
	}, raw, nil
}

// groupsOf are the supplementary groups of the other end (SO_PEERGROUPS, Linux 4.13).
func groupsOf(fd uintptr) []uint32 {
	groups := make([]uint32, 32)
	for {
		size := uint32(4 * len(groups))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == 0:
			return groups[:size/4]
		case errno != unix.ERANGE:
			return nil
		}
		groups = make([]uint32, size/4)
	}
}

// identify looks at the process that connected. begun is when the connection was accepted.
func (p *callerProcess) identify(raw syscall.RawConn, fs proc.FS, begun snapshot.StartTime) {
	pidfd, noPidfd := -1, error(nil)
	if err := raw.Control(func(fd uintptr) {
		p.groups = append(p.groups, groupsOf(fd)...)
		pidfd, noPidfd = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); err != nil {
		noPidfd = err
	}
	if noPidfd != nil { // before Linux 6.5
		pidfd, _ = unix.PidfdOpen(int(p.pid), 0) // -1 before Linux 5.3
	}
	if pidfd >= 0 {
		defer unix.Close(pidfd)
	}
	p.examine(fs, pidfd, noPidfd != nil, begun)
}

func hasEnded(h *proc.Handle, pidfd int) (bool, error) {
	if pidfd >= 0 {
		return proc.HasEnded(pidfd)
	}
	stat, err := h.Stat()
	return stat.Gone(), err
}

// examine looks at the process in /proc, and then makes sure that it is still the one that connected.
func (p *callerProcess) examine(fs proc.FS, pidfd int, byPID bool, begun snapshot.StartTime) {
	if p.pid == 0 { // it can't be seen from here
		p.unknown, p.contained = errForeign, true
		return
	}
	p.unknown = errPeerGone
	h, err := fs.Open(p.pid)
	if err != nil || pidfd < 0 && !byPID {
		return
	}
	defer h.Close()
	stat, err := h.Stat()
	namespace, nsErr := fs.Namespace(p.pid)
	ended, endErr := hasEnded(h, pidfd)
	switch {
	case err != nil, nsErr != nil, endErr != nil, ended, byPID && stat.Start > begun:
		return // what was read may be of another process with this PID
	}
	if p.uid != 0 {
		p.owner, _ = h.OwnerOfUID(p.uid, fs.UserNamespace())
	}
	if ours, err := os.Readlink("/proc/self/ns/pid"); err != nil || namespace != ours {
		p.unknown, p.contained = errForeign, isContained(h, p.uid)
		return
	}
	p.unknown = nil
}

// isContained says whether root's engine, which can make user namespaces as any user, gave a process in another PID
// namespace its uid. The cgroup shows it. No engine of a user gives uid 0.
func isContained(h *proc.Handle, uid snapshot.UID) bool {
	place := h.Place()
	return uid == 0 || place.ID != "" && !place.Delegated
}

// processes are those that a request names. No other process gets their PIDs while they are held.
type processes struct {
	fs   proc.FS
	by   callerProcess
	held map[snapshot.PID]*proc.Handle
}

func (p *processes) owner(pid snapshot.PID) (snapshot.UID, error) {
	if p.by.unknown != nil {
		return 0, p.by.unknown
	}
	h := p.held[pid]
	if h == nil {
		var err error
		if h, err = p.fs.Open(pid); err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		p.held[pid] = h
	}
	if err := alive(h); err != nil {
		return 0, err
	}
	return h.UID()
}

// gone is a process that has ended since it was looked at; 0 for none.
func (p *processes) gone() snapshot.PID {
	for pid, h := range p.held {
		if alive(h) != nil {
			return pid
		}
	}
	return 0
}

func (p *processes) close() {
	for _, h := range p.held {
		_ = h.Close()
	}
}

func alive(h *proc.Handle) error {
	stat, err := h.Stat()
	if err == nil && stat.Gone() {
		err = proc.ErrGone
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", h.PID, err)
	}
	return nil
}
