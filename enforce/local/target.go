package local

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local/asked"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// target is a process that is to end.
type target struct {
	item    *order.Termination
	judged  *snapshot.Process // the item's
	outcome *order.Outcome
	fd      reference          // open until the order is carried out
	start   snapshot.StartTime // as read by the last verification
	state   byte               // of /proc/PID/stat, likewise

	// earlier is what another order asked it; nil for nothing. So grace is how long the order waits for it, and mayKill
	// says whether SIGKILL may follow then.
	earlier *asked.Earlier
	grace   time.Duration
	mayKill bool

	// stopping is the container that its engine was asked to stop; nil for none. failedStop
	// then has the error of that, if it failed, and engineErr is why it was not asked.
	stopping   *container.Running
	failedStop chan error
	engineErr  error
}

func (t *target) key() proc.ID { return proc.ID{PID: t.judged.PID, Start: t.start} }

func (t *target) conclude(o objection) {
	if t.earlier != nil {
		o.reason = joined(o.reason, t.earlierReason())
	}
	t.outcome.Status, t.outcome.Reason = o.status, o.reason
	if about := t.containerReason(); about != "" && o.status != order.StatusGone {
		t.outcome.Reason = joined(o.reason, about)
	}
}

// joined is two reasons, of which each may be empty.
func joined(a, b string) string { return strings.Trim(a+"; "+b, "; ") }

// poll waits until one of the processes has ended or the timeout is over, and says which have ended: all their threads
// are gone and have released their devices. A zombie has ended.
func poll(targets []*target, timeout time.Duration) ([]bool, error) {
	polled := make([]unix.PollFd, len(targets))
	for i, t := range targets {
		polled[i] = unix.PollFd{Fd: int32(t.fd.pidfd), Events: unix.POLLIN} // the kernel leaves out noPidfd
	}
	_, err := unix.Poll(polled, int(timeout.Milliseconds()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return nil, fmt.Errorf("wait for processes to end: %w", err)
	}
	ended := make([]bool, len(targets))
	for i, t := range targets {
		ended[i] = polled[i].Revents&unix.POLLIN != 0 // a pidfd becomes readable when its process ends
		if t.fd.pidfd == noPidfd {
			alive, err := t.fd.alive()
			ended[i] = err == nil && !alive
		}
	}
	return ended, nil
}

// reference is one process. A pidfd refers to it for as long as it is open, however often its PID is reused
// (pidfd_open(2)). Linux before 5.3 has none, and filters of system calls may refuse it: there it is the process
// with the PID that started then, and that is read again right before each signal.
type reference struct {
	pidfd int // or noPidfd
	pid   snapshot.PID
	start snapshot.StartTime
	proc  proc.FS
}

const noPidfd = -1

func (r reference) close() {
	if r.pidfd != noPidfd {
		_ = unix.Close(r.pidfd) // nothing was written to it
	}
}

func (r reference) alive() (bool, error) { return r.proc.Alive(r.pid, r.start) }

// signal sends a signal, or with 0 asks whether it may be sent. ESRCH: the process has ended, perhaps was reaped.
func (r reference) signal(sig unix.Signal) error {
	if r.pidfd != noPidfd {
		if err := unix.PidfdSendSignal(r.pidfd, sig, nil, 0); !lacksPidfd(err) {
			return err
		}
	}
	switch alive, err := r.alive(); {
	case err != nil:
		return err
	case !alive:
		return unix.ESRCH
	}
	return unix.Kill(int(r.pid), sig)
}

// lacksPidfd says whether an error may mean that the kernel, or a filter of system calls, has no pidfds here.
func lacksPidfd(err error) bool { return errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) }
