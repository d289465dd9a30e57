package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// Machine is this machine. All fields but Owner and Restricted are set.
type Machine struct {
	// SMI asks nvidia-smi how the driver runs the GPUs; *nvidiasmi.Querier implements it.
	SMI interface {
		Modes(ctx context.Context) (nvidiasmi.Listing, error)
	}
	Notes *disk.Store // what root's notes say about the state folder
	// Run runs a program for a few seconds at most, and returns its output.
	Run func(ctx context.Context, program string, args ...string) ([]byte, error)

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
	go func() { // SMI ends with its timeout at the latest
		began := time.Now()
		modes, err := m.SMI.Modes(ctx)
		if known, driverErr := hardware.FromDriver(m.Proc); err == nil && driverErr == nil && !m.Restricted && int(m.Owner) == os.Geteuid() {
			modes.GPUs = hardware.WithMissing(modes.GPUs, known)
		}
		driver <- Driver{Modes: modes, Took: time.Since(began), Err: err, Restricted: m.Restricted}
	}()
	system := systemHere()
	mounts, _ := os.ReadFile(filepath.Join(m.Proc, "self/mounts")) // empty is unknown
	checks := []Check{
		m.checkGenv(), CheckState(m.state(ctx)), clock(), m.checkNamespace(),
		CheckGuard(system.Kernel, string(mounts), hasBPF()), m.checkServices(ctx), CheckDisk(m.spaces()),
	}
	found := <-driver
	system.Driver = found.Version()
	return slices.Insert(checks, 1, CheckDriver(found)), system
}

// checkGenv judges this program: others than root must not be able to change what sudo runs.
func (m *Machine) checkGenv() Check {
	g := m.Genv
	seen := fmt.Sprintf("%s, version %s, protocol %d", g.Path, g.Version, g.Protocol)
	f, err := stat(g.Path, os.Lstat)
	return First(Genv,
		If(err != nil, Unsure, "%s: %v", seen, err),
		If(!f.trusted(m.Owner), "genv-writable", "%s; it belongs to uid %d with mode %04o", seen, f.UID, f.Mode.Perm()),
		If(true, "", "%s", seen))
}

func (m *Machine) checkNamespace() Check {
	found, err := m.Notes.Examine()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		found.Refusal = err.Error()
	}
	return CheckNamespace(found.Namespaces.PID, found.Refusal, true)
}

// clock asks the kernel whether its clock is synchronized (adjtimex(2)). How it differs
// from a controller's, only the controller can measure.
func clock() Check {
	var now unix.Timex
	_, err := unix.Adjtimex(&now)
	return First(Clock,
		If(err != nil, Unsure, "adjtimex: %v", err),
		If(now.Status&unix.STA_UNSYNC != 0, "clock-unsynchronized", "the kernel says that the clock is not synchronized"),
		If(true, "", "synchronized, as the kernel says"))
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

func (m *Machine) checkServices(ctx context.Context) Check {
	if _, err := os.Stat(filepath.Join(m.SysRun, "systemd/system")); err != nil { // as sd_booted(3)
		return CheckServices(true, "", nil)
	}
	out, err := m.Run(ctx, "systemctl", append([]string{"show", "--no-pager", "--property=" + UnitProperties}, Units()...)...)
	if err != nil {
		err = fmt.Errorf("systemctl: %w", err)
	}
	return CheckServices(false, string(out), err)
}

// systemHere is the software of this machine, apart from its driver.
func systemHere() System {
	release, _ := os.ReadFile("/etc/os-release") // empty is unknown
	s := System{OS: OSName(string(release))}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		s.Kernel, s.Arch = unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Machine[:])
	}
	return s
}
