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
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/guard/guardtest"
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
	g, err := kernel.Open(kernel.Location{Cgroup: args[0], Dir: args[1], Unpinned: args[1] == ""})
	if err != nil {
		return err
	}
	err = errors.Join(
		g.SetMinors(guard.MinorsOf(0)),
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

// The flags that others attach their programs with.
const (
	none     = 0
	override = 1
	multi    = 2
)

// foreign attaches a program that denies minor 2 of every major, as systemd and runc do it.
func foreign(t *testing.T, cgroup string, flags uint32) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "foreign", Type: ebpf.CGroupDevice, AttachType: ebpf.AttachCGroupDevice, License: "Apache-2.0",
		Instructions: asm.Instructions{
			asm.LoadMem(asm.R2, asm.R1, 8, asm.Word),
			asm.Mov.Imm(asm.R0, 0),
			asm.JEq.Imm(asm.R2, 2, "end"),
			asm.Mov.Imm(asm.R0, 1),
			asm.Return().WithSymbol("end"),
		},
	})
	require.NoError(t, err)
	folder, err := os.Open(cgroup)
	require.NoError(t, err)
	require.NoError(t, link.RawAttachProgram(link.RawAttachProgramOptions{
		Target: int(folder.Fd()), Program: program, Attach: ebpf.AttachCGroupDevice, Flags: flags,
	}))
	t.Cleanup(func() {
		require.NoError(t, link.RawDetachProgram(link.RawDetachProgramOptions{
			Target: int(folder.Fd()), Program: program, Attach: ebpf.AttachCGroupDevice,
		}))
		require.NoError(t, program.Close())
		require.NoError(t, folder.Close())
	})
}

func TestForeignPrograms(t *testing.T) {
	for name, c := range map[string]struct {
		above, own, below int
		conflict          bool
		others            int
	}{
		"alone":                        {-1, -1, -1, false, 0},
		"next to one of ours":          {-1, multi, -1, false, 1},
		"below one":                    {multi, -1, -1, false, 1},
		"above one":                    {-1, -1, multi, false, 0},
		"above one that shares not":    {-1, -1, none, false, 0},
		"above and below":              {multi, multi, multi, false, 2},
		"below one to be overridden":   {override, -1, -1, false, 1},
		"next to one that shares not":  {-1, none, -1, true, 1},
		"next to one to be overridden": {-1, override, -1, true, 1},
		"below one that shares not":    {none, -1, -1, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			above, own := s.cgroup, filepath.Join(s.cgroup, "own")
			below := filepath.Join(own, "below")
			s.cgroup = own
			require.NoError(t, os.MkdirAll(below, 0o755))
			t.Cleanup(func() {
				require.NoError(t, os.Remove(below))
				require.NoError(t, os.Remove(own))
			})
			for dir, flags := range map[string]int{above: c.above, own: c.own, below: c.below} {
				if flags >= 0 {
					foreign(t, dir, uint32(flags))
				}
			}
			report := kernel.Probe(s.options())
			require.Len(t, report.Programs, c.others)
			if c.conflict {
				require.ErrorIs(t, report.Err, kernel.ErrConflict)
				require.ErrorContains(t, report.Err, "(foreign) at "+report.Programs[0].Cgroup)
				_, err := kernel.Open(s.options())
				require.ErrorIs(t, err, kernel.ErrConflict)
				require.NoError(t, kernel.Remove(s.pins))
				return
			}
			require.NoError(t, report.Err)
			enforce(t, s.open())
			require.Equal(t, report.Programs, kernel.Probe(s.options()).Programs, "the guard itself is not in the way")
			s.cgroup = below
			user := s.user(1001)
			require.Equal(t, "allowed", user.open(s.node(0)))
			require.Equal(t, "denied", user.open(s.node(1)), "by the guard")
			denied := c.above == multi || c.own >= 0 || c.below >= 0
			require.Equal(t, denied, user.open(s.node(2)) == "denied", "by the other program")
		})
	}
}

// TestProbeOfThisMachine changes nothing, so it can look at the root cgroup.
func TestProbeOfThisMachine(t *testing.T) {
	report := kernel.Probe(kernel.Location{})
	for _, a := range report.Abilities {
		t.Logf("%-20s %-5v %s", a.Name, a.OK, a.Detail)
		require.NotEmpty(t, a.Detail)
	}
	guardtest.Need(t)
	for _, a := range report.Abilities {
		require.True(t, a.OK || a.Name == "pins" || a.Name == "PIDs in events" || a.Name == "room in the cgroup", a.Name)
	}
}
