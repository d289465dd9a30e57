package watch

import (
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// maxEnds is the most processes that are watched for their end: each takes a file descriptor.
// On a host with more, the next look shows which of the others have ended.
const maxEnds = 512

// watchEnds watches the ends of the processes that a look showed, and no others.
func (p *poller) watchEnds(shown map[snapshot.PID]bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.files.watchAgain()
	for pid, fd := range p.ends {
		if !shown[pid] {
			delete(p.ends, pid)
			_ = unix.Close(fd) // which ends the wait for it
		}
	}
	for pid := range shown {
		if p.ends[pid] == 0 && len(p.ends) < maxEnds {
			p.watchEnd(pid)
		}
	}
}

// watchEnd watches the end of a process. One that has ended since the look, or now, is seen
// by the next look.
func (p *poller) watchEnd(pid snapshot.PID) {
	fd, err := unix.PidfdOpen(int(pid), 0)
	if err != nil {
		return
	}
	if p.add(fd) != nil {
		_ = unix.Close(fd)
		return
	}
	p.ends[pid] = fd
}

// ended closes the descriptor of a process that has ended; false for another descriptor.
func (p *poller) ended(fd int) bool {
	for pid, of := range p.ends {
		if of == fd {
			delete(p.ends, pid)
			_ = unix.Close(fd)
			return true
		}
	}
	return false
}
