package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// Machine is this machine. All fields but Owner, Restricted and Guard must be set.
type Machine struct {
	// SMI is a *nvidiasmi.Querier.
	SMI interface {
		Modes(ctx context.Context) (nvidiasmi.Listing, error)
	}
	Notes *disk.Store // root's notes about the state folder
	// Run runs a program for a few seconds at most, and returns its output.
	Run func(ctx context.Context, program string, args ...string) ([]byte, error)

	StateDir string       // the state folder
	RootDir  string       // the folder of root's notes
	Record   string       // the host's record; empty for none
	Proc     string       // mount point of /proc
	SysRun   string       // /run
	Owner    snapshot.UID // must own RootDir and Record's folder: root, except in a demo

	Restricted bool            // a guard may hide devices from this user
	Guard      *GuardState     // nil if unknown
	Trial      *snapshot.Trial // nil for none

	Genv GenvProgram
}

// Examine makes the checks of a host in order, and describes its system.
func (m *Machine) Examine(ctx context.Context) ([]Check, System) {
	driver := make(chan DriverCall, 1)
	go func() { // SMI has its own timeout
		began := time.Now()
		modes, err := m.SMI.Modes(ctx)
		if known, driverErr := hardware.FromDriver(m.Proc); err == nil && driverErr == nil && !m.Restricted &&
			int(m.Owner) == os.Geteuid() {
			modes.GPUs = hardware.WithMissing(modes.GPUs, known)
		}
		driver <- DriverCall{Modes: modes, Took: time.Since(began), Err: err, Restricted: m.Restricted}
	}()
	software := systemHere()
	mounts, _ := os.ReadFile(filepath.Join(m.Proc, "self/mounts")) // empty is unknown
	state := m.state(ctx)
	checks := []Check{
		WithTrial(m.checkGenv(), m.Trial), CheckState(state), clock(), m.checkNamespace(),
		CheckGuard(CheckKernel(software.Kernel, string(mounts), hasBPF()), m.Guard),
		m.checkServices(ctx), CheckDisk(m.spaces(&state)),
	}
	found := <-driver
	software.Driver = found.Version()
	return slices.Insert(checks, 1, CheckDriver(found)), software
}

// checkGenv judges this program: only root may be able to change what sudo runs.
func (m *Machine) checkGenv() Check {
	seen := fmt.Sprintf("%s, version %s, protocol %d", m.Genv.Path, m.Genv.Version, m.Genv.Protocol)
	f, err := stat(unix.Lstat, m.Genv.Path)
	if err != nil {
		return Unknown(Genv, "%s: %v", seen, err)
	}
	return Judge(Genv, seen,
		If(!f.trusted(m.Owner), "genv-writable", "%s is %s", seen, f.describe()))
}

func (m *Machine) checkNamespace() Check {
	found, err := m.Notes.Examine()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		found.Refusal = err.Error()
	}
	return CheckNamespace(found.Namespaces.PID, found.Refusal)
}

// clock asks the kernel whether its clock is synchronized (adjtimex(2)).
func clock() Check {
	var now unix.Timex
	_, err := unix.Adjtimex(&now)
	return Judge(Clock, "synchronized",
		If(err != nil, Unsure, "adjtimex: %v", err),
		If(now.Status&unix.STA_UNSYNC != 0, "clock-unsynchronized", "not synchronized"))
}

// hasBPF calls bpf(2) with an unknown command, which loads nothing.
func hasBPF() bool {
	const noCommand = 1 << 30
	_, _, err := unix.Syscall(unix.SYS_BPF, noCommand, 0, 0)
	return err != unix.ENOSYS
}

// hasSystemd is sd_booted(3).
func (m *Machine) hasSystemd() bool {
	_, err := os.Stat(filepath.Join(m.SysRun, "systemd/system"))
	return err == nil
}

func (m *Machine) checkServices(ctx context.Context) Check {
	const show = "show --no-pager --property=Id,LoadState,ActiveState,UnitFileState " +
		"genv-host.service genv-guard.service genv-enforce.service genv-controller.service"
	if !m.hasSystemd() {
		return Unknown(Services, "this machine doesn't run systemd")
	}
	out, err := m.Run(ctx, "systemctl", strings.Fields(show)...)
	if err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		err = fmt.Errorf("systemctl: %w%s", err, OneLine(strings.TrimSuffix(": "+said, ": ")))
	}
	return CheckServices(string(out), err)
}

func systemHere() System {
	release, _ := os.ReadFile("/etc/os-release") // empty is unknown
	s := System{OS: OSName(string(release))}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		s.Kernel, s.Arch = unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Machine[:])
	}
	return s
}

// state follows no link in the state folder.
func (m *Machine) state(ctx context.Context) StateFacts {
	s := StateFacts{
		Path: m.StateDir, Owner: m.Owner, Systemd: m.hasSystemd(),
		Tampered: system.UsersMount(system.Mountinfo(m.Proc), m.StateDir),
	}
	s.Root, _ = stat(unix.Lstat, m.RootDir) // nil for none
	path, owned, err := m.Notes.Where()
	if s.Err = err; s.Tampered != "" || err != nil { // a user's mount may never answer
		s.Path = filepath.Dir(m.StateDir)
		return s
	}
	s.Path, s.Owned = path, owned
	if s.Folder, s.Err = statFolder(path); s.Err != nil || !s.Folder.is(unix.S_IFDIR) {
		return s
	}
	dir, err := folder.OpenExisting(path)
	if err != nil {
		s.Err = err
		return s
	}
	defer dir.Close()
	for _, name := range stateNames() {
		if owned && name == lockName {
			continue // only for root
		}
		f := FileFacts{Name: name}
		if f.Stat_t, err = dir.Stat(name); err != nil {
			continue
		}
		if f.is(unix.S_IFREG) {
			f = read(dir, f)
		}
		s.Files = append(s.Files, f)
	}
	if found, err := m.Notes.Examine(); err == nil {
		s.Lost = found.Lost
	}
	s.Holder = m.holder(ctx, dir)
	return s
}

// statFolder follows a link of root's or this user's, as genv does.
func statFolder(path string) (*FileFacts, error) {
	f, err := stat(unix.Lstat, path)
	if err == nil && f.is(unix.S_IFLNK) && (f.Uid == 0 || int(f.Uid) == os.Geteuid()) {
		return stat(unix.Stat, path)
	}
	return f, err
}

func stat(call func(string, *unix.Stat_t) error, path string) (*FileFacts, error) {
	f := &FileFacts{Name: path}
	if err := call(path, &f.Stat_t); err != nil {
		return nil, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return f, nil
}

// read decodes a state file, again if it can't: genv 1.4.3 truncates a file before it writes it.
func read(dir *folder.Folder, f FileFacts) FileFacts {
	for range 5 {
		data, _, err := dir.Read(f.Name, maxStateFile)
		if err != nil {
			f.Unread = err.Error()
			break
		}
		if f.decode(data); f.Content == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return f
}

// holder names the process that holds the lock of the state files for about 2 s; empty for none. It asks for a shared
// lock, which blocks no other reader.
func (m *Machine) holder(ctx context.Context, dir *folder.Folder) string {
	file, st, err := dir.OpenFile(lockName, maxStateFile)
	if err != nil {
		return ""
	}
	defer file.Close() // and with it the lock
	within, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := folder.Flock(within, file, unix.LOCK_SH); !errors.Is(err, folder.ErrLocked) || ctx.Err() != nil {
		return ""
	}
	return proc.LockHolderOf(m.Proc, &st).String()
}

func (m *Machine) spaces(s *StateFacts) []Space {
	found := []Space{space("the state files", s.Path, false), space("root's notes", m.RootDir, true)}
	if m.Record == "" {
		return found
	}
	record := space("the record", filepath.Dir(m.Record), true)
	if record.Path == filepath.Dir(m.Record) {
		record.Owner = m.Owner
		record.Folder, _ = stat(unix.Lstat, record.Path)
	}
	return append([]Space{record}, found...)
}

// CheckSpace judges the file system of a folder for this process.
func CheckSpace(what, path string) Check {
	s := space(what, path, os.Geteuid() == 0)
	return s.check()
}

// space describes the file system of the nearest existing folder. Only root may use reserved blocks.
func space(what, path string, root bool) Space {
	s := Space{For: what, Path: path}
	var st unix.Statfs_t
	for s.Err = unix.Statfs(s.Path, &st); errors.Is(s.Err, unix.ENOENT) && len(s.Path) > 1; {
		s.Path = filepath.Dir(s.Path)
		s.Err = unix.Statfs(s.Path, &st)
	}
	s.Free, s.Inodes, s.ReadOnly = st.Bavail*uint64(st.Bsize), st.Ffree, st.Flags&unix.ST_RDONLY != 0
	if root {
		s.Free = st.Bfree * uint64(st.Bsize)
	}
	if st.Files == 0 {
		s.Inodes = math.MaxUint64
	}
	return s
}
