package local

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// pidfd refers to one process for as long as it is open, however often the
// process's PID is reused (pidfd_open(2)).
type pidfd int

func openPidfd(pid snapshot.PID) (pidfd, error) {
	fd, err := unix.PidfdOpen(int(pid), 0) // always close-on-exec
	return pidfd(fd), err
}

func (p pidfd) close() { _ = unix.Close(int(p)) } // nothing was written to it

// signal sends a signal, or with 0 only asks whether it may be sent. ESRCH says
// that the process was reaped.
func (p pidfd) signal(sig unix.Signal) error {
	return unix.PidfdSendSignal(int(p), sig, nil, 0)
}

// ended says whether the process has ended: all its threads are gone, and with
// them its hold on any device. A zombie has ended.
func (p pidfd) ended() (bool, error) {
	ended, err := poll([]pidfd{p}, 0)
	return err == nil && ended[0], err
}

// poll waits until one of the processes has ended or the time is over, and says
// which have: a pidfd is readable from then on.
func poll(fds []pidfd, timeout time.Duration) ([]bool, error) {
	polled := make([]unix.PollFd, len(fds))
	for i, fd := range fds {
		polled[i] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
	}
	_, err := unix.Poll(polled, int(timeout.Milliseconds()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return nil, fmt.Errorf("wait for processes to end: %w", err)
	}
	ended := make([]bool, len(fds))
	for i := range polled {
		ended[i] = polled[i].Revents&unix.POLLIN != 0
	}
	return ended, nil
}
