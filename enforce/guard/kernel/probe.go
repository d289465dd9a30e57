package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Ability is something that the guard needs or can use.
type Ability struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Needed bool   `json:"needed"`           // without it there is no guard
	Detail string `json:"detail,omitempty"` // where it is, or why it is missing
}

// Support is what this kernel can do for a guard, and the other programs that decide about opens.
type Support struct {
	Possible  bool      `json:"possible"`
	Why       string    `json:"why,omitempty"` // why it isn't
	Abilities []Ability `json:"abilities"`
	Programs  []Program `json:"programs"`
	Err       error     `json:"-"` // has a class below; nil if Open can work, without a bpffs with Location.Unpinned
}

// Probe says what exists and what is missing. It attaches and pins nothing.
func Probe(o Location) Support { return gather(o).report() }

type probedFacts struct {
	options  Location
	release  string // uname -r
	lockdown string // of the kernel; empty if unknown

	cgroup      cgroup
	cgroupErr   error
	loadErr     error // of the maps or the program
	pids        bool
	bpffsErr    error
	programs    []Program
	programsErr error
}

func gather(o Location) probedFacts {
	o.Dir = cmp.Or(o.Dir, DefaultDir)
	f := probedFacts{options: o, release: release(), lockdown: lockdown()}
	f.cgroup, f.cgroupErr = findCgroup(o.Cgroup)
	f.pids, f.loadErr = tryLoading()
	f.bpffsErr = isBPFFS(filepath.Dir(o.Dir))
	if f.cgroupErr == nil {
		f.programs, f.programsErr = f.cgroup.programs()
	}
	return f
}

func tryLoading() (pids bool, err error) {
	m, err := createMaps()
	if err != nil {
		return false, err
	}
	defer m.close()
	program, pids, err := m.load(nvidiaMajor)
	if err != nil {
		return false, err
	}
	return pids, program.Close()
}

func release() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return "of unknown version"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func lockdown() string {
	b, err := os.ReadFile("/sys/kernel/security/lockdown")
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(b), "[")
	mode, _, _ := strings.Cut(after, "]")
	return mode
}

func (f probedFacts) report() Support {
	r := Support{Programs: append([]Program{}, f.programs...)}
	r.add("programs and maps", true, f.loadErr, "Linux "+f.release, f.whyNotLoaded())
	r.add("cgroup2", true, f.cgroupErr, f.where(), "")
	r.add("room in the cgroup", true, f.conflict(), f.others(), "")
	canPin := !f.options.Unpinned && !errors.Is(f.bpffsErr, ErrNoBPFFS)
	r.add("pins", canPin, f.bpffsErr, f.options.Dir, "; without pins the guard ends with its process")
	if f.loadErr == nil {
		var noPIDs error
		if !f.pids {
			noPIDs = fmt.Errorf("not reported by Linux %s (6.1 does): events name the user, but not the process",
				f.release)
		}
		r.add("PIDs in events", false, noPIDs, "yes", "")
	}
	if r.Possible = r.Err == nil; !r.Possible {
		r.Why = r.Err.Error()
	}
	return r
}

func (r *Support) add(name string, needed bool, err error, detail, hint string) {
	if err != nil {
		detail = err.Error() + hint
		if needed && r.Err == nil {
			r.Err = fmt.Errorf("%s: %w%s", name, err, hint)
		}
	}
	r.Abilities = append(r.Abilities, Ability{Name: name, OK: err == nil, Needed: needed, Detail: detail})
}

func (f probedFacts) whyNotLoaded() string {
	switch {
	case errors.Is(f.loadErr, ErrUnsupported):
		return fmt.Sprintf(" (this is Linux %s; Linux 5.8 with CONFIG_CGROUP_BPF is needed)", f.release)
	case errors.Is(f.loadErr, ErrPermission) && f.lockdown != "" && f.lockdown != "none":
		return fmt.Sprintf(" (the kernel is locked down: %s; otherwise run this as root)", f.lockdown)
	case errors.Is(f.loadErr, ErrPermission):
		return " (root with CAP_BPF and CAP_NET_ADMIN is needed; containers often lack them)"
	}
	return ""
}

func (f probedFacts) where() string {
	if f.cgroupErr == nil && f.cgroup.id != rootID && f.options.Cgroup == "" {
		return f.cgroup.path + ", which is not the machine's root cgroup: processes outside it are not guarded"
	}
	return f.cgroup.path
}

func (f probedFacts) others() string {
	switch n := len(f.programs); {
	case f.programsErr != nil:
		return fmt.Sprintf("unknown: %v", f.programsErr)
	case n == 0:
		return "no other programs"
	case n == 1:
		return "next to another program; an open needs the consent of all"
	default:
		return fmt.Sprintf("next to %d other programs; an open needs the consent of all", n)
	}
}

func (f probedFacts) conflict() error {
	i := slices.IndexFunc(f.programs, func(p Program) bool { return p.Exclusive })
	if i < 0 {
		return nil
	}
	p := &f.programs[i]
	return fmt.Errorf("%w: program %d (%s) at %s was attached without BPF_F_ALLOW_MULTI", ErrConflict, p.ID,
		p.Name, p.Cgroup)
}

// Errors by what the caller does about them.
var (
	// ErrUnsupported: this kernel or container lacks what the guard needs, until a reboot: enforce by polling.
	ErrUnsupported = errors.New("the kernel guard is not supported here")
	// ErrPermission: this process may not load or pin BPF programs. Run it as root.
	ErrPermission = errors.New("no permission for the kernel guard")
	// ErrNoBPFFS: there is no bpffs to pin the guard in. Mount one, or use Location.Unpinned.
	ErrNoBPFFS = errors.New("no bpffs")
	// ErrConflict: another program holds the cgroup, or a parent, alone. Remove it, or enforce by polling.
	ErrConflict = errors.New("another program is in the way of the kernel guard")
)

// classify gives an error of bpf(2) its class. Without CAP_BPF, or in a locked-down kernel, root gets EPERM.
func classify(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %s: %w", ErrPermission, what, err)
	case isPassing(err), errors.Is(err, os.ErrClosed):
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrUnsupported, what, err)
}

// isPassing says whether an error is temporary, of this process or machine.
func isPassing(err error) bool {
	return slices.ContainsFunc([]error{unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EINTR},
		func(passing error) bool { return errors.Is(err, passing) })
}
