package socket

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// loginOf is the user who logged in and started the process at the other end of a socket,
// whatever the process became since, as by sudo: see loginuid in proc(5). It is nil if the
// kernel doesn't know, as for services, or if it can't be said of which process it is.
func loginOf(fd int, pid snapshot.PID) *snapshot.UID {
	pidfd, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if err != nil { // before Linux 6.5
		pidfd, err = unix.PidfdOpen(int(pid), 0)
	}
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(pidfd) }()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/loginuid", pid))
	if err != nil {
		return nil
	}
	// Only now: while the process is there, its PID is of no other one.
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil && err != unix.EPERM {
		return nil
	}
	return parseLogin(string(data))
}

// parseLogin reads /proc/PID/loginuid, which is the highest number if there was no login.
func parseLogin(text string) *snapshot.UID {
	n, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil || n == math.MaxUint32 {
		return nil
	}
	uid := snapshot.UID(n)
	return &uid
}
