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

// callerProcess is a connection's other end, as reported by the kernel.
type callerProcess struct {
	uid       snapshot.UID
	owner     snapshot.UID // who made its user namespace, or its own uid
	account   snapshot.UID // of the owner, who may have many uids
	groups    []uint32
	pid       snapshot.PID
	unknown   error             // why PIDs that the process names may mean nothing here, or nil
	contained bool              // root's container engine, or an image, chose the uid: it proves nothing
	name      snapshot.Username // of the account; empty if not looked up yet
}

// isRoot says whether it is root on the host itself or, on a simulated host, the same user.
func (p *callerProcess) isRoot() bool { return int(p.uid) == os.Geteuid() && p.unknown == nil }

// reserver is the uid whose reservations may change; 0 (root): all.
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

// groupsOf returns the peer's supplementary groups (SO_PEERGROUPS, Linux 4.13).
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

// identify examines the process that connected. begun is when the connection was accepted.
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

// examine reads /proc, then checks that this is still the process that connected.
func (p *callerProcess) examine(fs proc.FS, pidfd int, byPID bool, begun snapshot.StartTime) {
	if p.pid == 0 { // not visible in this PID namespace
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
		return // the PID may have been reused while reading
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

// isContained says whether root's container engine gave the process its uid, as it can make any user's namespace. The
// cgroup shows it. Users' engines never give uid 0.
func isContained(h *proc.Handle, uid snapshot.UID) bool {
	place := h.Place()
	return uid == 0 || place.ID != "" && !place.Delegated
}

// processes are those that a request names. Their PIDs aren't reused while they are held.
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
