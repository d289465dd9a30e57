package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// SMI asks nvidia-smi how the driver runs the GPUs; *nvidiasmi.Querier implements it.
type SMI interface {
	Modes(ctx context.Context) ([]nvidiasmi.Mode, error)
}

// Notes reads what root's notes say about the state folder; *disk.Store implements it.
type Notes interface {
	Examine() (disk.Examination, error)
}

// Runner runs a program and returns its output. It must end with ctx.
type Runner func(ctx context.Context, program string, args ...string) ([]byte, error)

// Machine is this machine. All fields but Owner and Restricted are set.
type Machine struct {
	SMI   SMI
	Notes Notes
	Run   Runner

	StateDir string // the state folder
	RootDir  string // the folder of root's notes
	Record   string // the file of the host's record; empty for none
	Proc     string // where /proc is mounted
	SysRun   string // /run
	// Owner has to own RootDir and the folder of Record: root, except in a demo.
	Owner snapshot.UID

	// Restricted says that a guard may hide devices from this user.
	Restricted bool

	Genv Program
}

// Examine makes the checks of a host, in their order, and says what system it has.
func (m *Machine) Examine(ctx context.Context) ([]Check, System) {
	driver := make(chan Driver, 1)
	go func() { driver <- m.driver(ctx) }() // SMI ends with its timeout at the latest
	kernel := m.kernel()
	rest := map[Name]Check{
		Genv:         m.checkGenv(),
		StateFolder:  CheckState(m.state(ctx)),
		Clock:        clock(),
		PIDNamespace: CheckNamespace(m.namespace()),
		Services:     CheckServices(m.systemd(ctx)),
		Disk:         CheckDisk(m.spaces()),
	}
	found := <-driver
	rest[DriverState], rest[Guard] = CheckDriver(found), CheckGuard(kernel)
	var checks []Check
	for _, name := range HostNames() {
		checks = append(checks, rest[name])
	}
	system := SystemHere()
	system.Driver = found.Version()
	return checks, system
}

// checkGenv judges this program: others than root must not be able to change what sudo runs.
func (m *Machine) checkGenv() Check {
	g := m.Genv
	seen := fmt.Sprintf("%s, version %s, protocol %d", g.Path, g.Version, g.Protocol)
	f, err := lstat(g.Path)
	if err != nil {
		return Unknown(Genv, "%s: %v", seen, err)
	}
	if f.UID != m.Owner || f.Mode.Perm()&0o022 != 0 {
		return Problem(Genv, "genv-writable", "%s; it belongs to uid %d with mode %04o", seen, f.UID, f.Mode.Perm())
	}
	return Good(Genv, "%s", seen)
}

func (m *Machine) driver(ctx context.Context) Driver {
	began := time.Now()
	modes, err := m.SMI.Modes(ctx)
	return Driver{Modes: modes, Took: time.Since(began), Err: err, Restricted: m.Restricted}
}

func (m *Machine) namespace() Namespace {
	found, err := m.Notes.Examine()
	n := Namespace{Inode: found.Namespaces.PID, Refusal: found.Refusal}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		n.Refusal = err.Error()
	}
	return n
}

// clock asks the kernel whether its clock is synchronized (adjtimex(2)). How it differs
// from a controller's, only the controller can measure.
func clock() Check {
	var now unix.Timex
	if _, err := unix.Adjtimex(&now); err != nil {
		return Unknown(Clock, "adjtimex: %v", err)
	}
	if now.Status&unix.STA_UNSYNC != 0 {
		return Problem(Clock, "clock-unsynchronized", "the kernel says that the clock is not synchronized")
	}
	return Good(Clock, "synchronized, as the kernel says")
}

func (m *Machine) kernel() Kernel {
	mounts, _ := os.ReadFile(filepath.Join(m.Proc, "self/mounts")) // empty is unknown
	return Kernel{Release: SystemHere().Kernel, Cgroup2: Cgroup2In(string(mounts)), BPF: hasBPF()}
}

// noCommand is a number that bpf(2) doesn't define.
const noCommand = 1 << 30

// hasBPF says whether the kernel has bpf(2). A command that doesn't exist is refused
// whoever asks, and nothing is loaded.
func hasBPF() *bool {
	_, _, err := unix.Syscall(unix.SYS_BPF, noCommand, 0, 0)
	has := err != unix.ENOSYS
	return &has
}

// systemctlTimeout is for one call of systemctl.
const systemctlTimeout = 5 * time.Second

func (m *Machine) systemd(ctx context.Context) Systemd {
	if _, err := os.Stat(filepath.Join(m.SysRun, "systemd/system")); err != nil { // as sd_booted(3)
		return Systemd{Absent: true}
	}
	ctx, cancel := context.WithTimeout(ctx, systemctlTimeout)
	defer cancel()
	out, err := m.Run(ctx, "systemctl", append([]string{"show", "--no-pager", "--property=" + UnitProperties}, Units()...)...)
	if err != nil {
		return Systemd{Err: fmt.Errorf("systemctl: %w", err)}
	}
	return Systemd{Units: ParseUnits(out)}
}

// SystemHere is the software of this machine, apart from its driver.
func SystemHere() System {
	release, _ := os.ReadFile("/etc/os-release") // empty is unknown
	s := System{OS: OSName(string(release))}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		s.Kernel, s.Arch = unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Machine[:])
	}
	return s
}
