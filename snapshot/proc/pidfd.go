package proc

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// HasEnded says whether the process of a pidfd has ended, also if it is a zombie, which signal 0
// doesn't say: then the pidfd is readable (pidfd_open(2)). An error means that this is unknown.
func HasEnded(pidfd int) (bool, error) {
	ready := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}} //nolint:gosec // descriptors are small
	for {
		n, err := unix.Poll(ready, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return false, os.NewSyscallError("poll", err)
		case n > 0 && ready[0].Revents&unix.POLLIN == 0:
			return false, os.NewSyscallError("poll", unix.EBADF) // POLLNVAL, POLLERR
		}
		return n > 0, nil
	}
}
