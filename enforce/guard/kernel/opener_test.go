package kernel_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/snapshot"
)

// opener opens what it is told to, and prints how that ended.
func opener([]string) error {
	lines := bufio.NewScanner(os.Stdin)
	held := map[string]int{}
	for lines.Scan() {
		request := strings.Fields(lines.Text())
		fmt.Println(answer(held, request[0], request[1], request[2:]))
	}
	return lines.Err()
}

func answer(held map[string]int, verb, path string, args []string) string {
	var err error
	switch verb {
	case "pid":
		return strconv.Itoa(os.Getpid())
	case "open":
		err = open(path)
	case "hold":
		held[path], err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	case "write":
		_, err = unix.Write(held[path], []byte("x"))
	case "reopen":
		err = open(fmt.Sprintf("/proc/self/fd/%d", held[path]))
	case "access":
		err = unix.Access(path, unix.R_OK)
	case "exists":
		err = unix.Access(path, unix.F_OK)
	case "count":
		return count(path)
	case "time":
		return timeOpens(path, args[0])
	case "crowd":
		return crowd(path, args[0])
	}
	if err == nil {
		return "ok"
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	return unix.ErrnoName(errno)
}

func open(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

// count says how many of many opens were let through and how many were denied, until
// there is a file "stop" next to the node.
func count(path string) string {
	var through, denied int
	for i := 1; ; i++ {
		if errors.Is(open(path), unix.EPERM) {
			denied++
		} else {
			through++
		}
		if i%256 != 0 {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "stop")); err == nil {
			return fmt.Sprintf("%d %d", through, denied)
		}
	}
}

// timeOpens is how long so many opens took, in nanoseconds.
func timeOpens(path, times string) string {
	n, _ := strconv.Atoi(times)
	began := time.Now()
	for range n {
		_ = open(path)
	}
	return strconv.FormatInt(time.Since(began).Nanoseconds(), 10)
}

// crowd opens the node once as each of so many users, and says how many were denied. Only
// root can do it; the thread is not used for anything else.
func crowd(path, users string) string {
	n, _ := strconv.Atoi(users)
	denied := 0
	runtime.LockOSThread()
	for uid := range n {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(20000+uid), 0, 0); errno != 0 {
			return errno.Error()
		}
		if errors.Is(open(path), unix.EPERM) {
			denied++
		}
	}
	return strconv.Itoa(denied)
}

// holder opens a guard that denies uid 1002 minor 0, says so, and waits to be killed.
// Its arguments are the cgroup, the folder for pins ("" for none) and the lease.
func holder(args []string) error {
	lease, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	g, err := kernel.Open(kernel.Options{Cgroup: args[0], Dir: args[1], Unpinned: args[1] == ""})
	if err != nil {
		return err
	}
	err = errors.Join(
		g.SetMinors(guard.MinorsOf(0), guard.Minors{}),
		g.SetAllowed(map[snapshot.UID]guard.Minors{1001: guard.MinorsOf(0)}),
		g.SetControl(guard.Control{Mode: guard.Enforce, Lease: lease, FirstUID: firstUID}),
	)
	if err != nil {
		return err
	}
	fmt.Println("guarding")
	time.Sleep(time.Minute)
	return nil
}
