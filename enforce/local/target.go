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
)

// target is a process that is to end.
type target struct {
	item    *order.Termination
	judged  *snapshot.Process // the item's
	outcome *order.Outcome
	fd      pidfd              // open until the order is carried out
	start   snapshot.StartTime // as read by the last verification
	state   byte               // of /proc/PID/stat, likewise

	// earlier is what another order asked it; nil for nothing.
	earlier *asked.Earlier

	// stopping is the container that its engine was asked to stop; nil for none. failedStop
	// then has the error of that, if it failed, and engineErr is why it was not asked.
	stopping   *container.Running
	failedStop chan error
	engineErr  error
}

func (t *target) key() asked.Process { return asked.Process{PID: t.judged.PID, Start: t.start} }

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

// poll waits until one of the processes has ended or the timeout is over, and
// says which have ended: all their threads are gone and have released their
// devices. A zombie has ended.
func poll(targets []*target, timeout time.Duration) ([]bool, error) {
	polled := make([]unix.PollFd, len(targets))
	for i, t := range targets {
		polled[i] = unix.PollFd{Fd: int32(t.fd), Events: unix.POLLIN}
	}
	_, err := unix.Poll(polled, int(timeout.Milliseconds()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return nil, fmt.Errorf("wait for processes to end: %w", err)
	}
	ended := make([]bool, len(targets))
	for i := range polled {
		ended[i] = polled[i].Revents&unix.POLLIN != 0 // a pidfd becomes readable when its process ends
	}
	return ended, nil
}

// pidfd refers to one process for as long as it is open, however often the
// process's PID is reused (pidfd_open(2)).
type pidfd int

func (p pidfd) close() { _ = unix.Close(int(p)) } // nothing was written to it

// signal sends a signal, or with 0 only asks whether it may be sent. ESRCH means
// that the process was reaped.
func (p pidfd) signal(sig unix.Signal) error {
	return unix.PidfdSendSignal(int(p), sig, nil, 0)
}
