package doctor

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// Namespace is the PID namespace in which genv runs.
type Namespace struct {
	Inode uint64 // 0 if it is unknown
	// Refusal is why its PIDs may not be those of the state files; empty if they are.
	Refusal string
	// Unsure says that it is not known whether they are.
	Unsure bool
}

// initialPID is the inode of the initial PID namespace (PROC_PID_INIT_INO of
// include/linux/proc_ns.h).
const initialPID = 0xEFFFFFFC

// CheckNamespace judges the PID namespace.
func CheckNamespace(n Namespace) Check {
	const other = "PID namespace %d, which is not the initial one"
	return First(PIDNamespace,
		If(n.Inode == 0, Unsure, "/proc doesn't show the PID namespace"),
		If(n.Refusal != "", "other-pid-namespace", "%s", n.Refusal),
		If(n.Inode == initialPID, "", "the initial PID namespace"),
		If(n.Unsure, Unsure, other+": whether the state files are of it, only genv knows", n.Inode),
		If(true, "", other+" and is that of the state files", n.Inode))
}

// Kernel is what decides whether `genv guard` could work.
type Kernel struct {
	Release string // uname -r
	Cgroup2 string // where cgroup2 is mounted; empty for nowhere
	BPF     *bool  // whether it has bpf(2); nil if that is unknown
}

// CheckGuard judges whether the kernel could guard devices: a program on cgroup2, with a
// ring buffer for its events, since Linux 5.8.
func CheckGuard(k Kernel) Check {
	var major, minor int
	parsed, _ := fmt.Sscanf(k.Release, "%d.%d", &major, &minor) // such as 6.1.0-18-amd64
	bpf := ""
	if k.BPF != nil {
		bpf = ", BPF"
	}
	seen := "Linux " + k.Release
	return First(Guard,
		If(parsed < 2 || major <= 0, Unsure, "the kernel's version is unknown (%q)", OneLine(k.Release)),
		If(major < 5 || major == 5 && minor < 8, "old-kernel", "%s", seen),
		If(k.BPF != nil && !*k.BPF, "no-bpf", "%s has no bpf(2)", seen),
		If(k.Cgroup2 == "", "no-cgroup2", "%s, without cgroup2", seen),
		If(true, "", "%s, cgroup2 at %s%s", seen, k.Cgroup2, bpf))
}

// Unit is a systemd unit, as `systemctl show` has it.
type Unit struct {
	Name   string
	Load   string // loaded, not-found, masked, …
	Active string // active, inactive, failed, …
	File   string // enabled, disabled, static, …; empty if there is no file
}

// Units are genv's units.
func Units() []string {
	return []string{"genv-host.service", "genv-enforce.service", "genv-controller.service"}
}

// UnitProperties are the properties that ParseUnits reads.
const UnitProperties = "Id,LoadState,ActiveState,UnitFileState"

// ParseUnits reads the output of `systemctl show --property=…` for several units: lines
// KEY=VALUE, with an empty line between units.
func ParseUnits(output []byte) []Unit {
	var units []Unit
	for block := range strings.SplitSeq(string(output), "\n\n") {
		values := map[string]string{}
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			values[key] = value
		}
		if values["Id"] != "" {
			units = append(units, Unit{values["Id"], values["LoadState"], values["ActiveState"], values["UnitFileState"]})
		}
	}
	return units
}

// Systemd is what systemd knows of genv's units.
type Systemd struct {
	Absent bool // the machine doesn't run systemd
	Units  []Unit
	Err    error
}

// CheckServices judges genv's units.
func CheckServices(s Systemd) Check {
	if s.Absent || s.Err != nil {
		return First(Services, If(s.Absent, Unsure, "this machine doesn't run systemd"), If(true, "services-unknown", "%v", s.Err))
	}
	var found []Check
	for _, u := range s.Units {
		if u.Load != "not-found" && u.Load != "masked" {
			found = append(found, u.check())
		}
	}
	return together(Services, "", "none of genv's units is installed", found, ", ")
}

func (u *Unit) check() Check {
	state := fmt.Sprintf("%s is %s and %s", strings.TrimSuffix(OneLine(u.Name), ".service"), cmp.Or(u.Active, "unknown"), cmp.Or(u.File, "unknown"))
	running := slices.Contains([]string{"active", "activating", "reloading"}, u.Active)
	return First(Services,
		If(u.Active == "failed", "service-failed", "%s", state),
		If(!running && strings.HasPrefix(u.File, "enabled"), "service-stopped", "%s", state),
		If(running && u.File == "disabled", "service-disabled", "%s", state),
		If(true, "", "%s", state))
}

// Cgroup2In finds where cgroup2 is mounted in the text of /proc/self/mounts; empty if it
// isn't.
func Cgroup2In(mounts string) string {
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) >= 3 && f[2] == "cgroup2" {
			return f[1]
		}
	}
	return ""
}

// OSName reads os-release(5).
func OSName(release string) string {
	for line := range strings.Lines(release) {
		if name, found := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); found {
			return OneLine(strings.Trim(name, `"'`))
		}
	}
	return ""
}

// Space is a file system on which genv writes.
type Space struct {
	For      string // what is written there: the record, the state files, …
	Path     string // the folder, or the nearest one that exists
	Free     uint64 // bytes that the writer can use
	Inodes   uint64 // that are free
	NoInodes bool   // the file system doesn't count inodes
	ReadOnly bool
	Err      error
	// Folder is the folder of the record, which Owner has to own; nil if that doesn't matter.
	Folder *File
	Owner  snapshot.UID
}

// What is too little. The record of a busy day is some megabytes.
const (
	fullBytes, fullInodes = 1 << 20, 1
	lowBytes, lowInodes   = 200 << 20, 1000
)

// CheckDisk judges the file systems on which genv writes.
func CheckDisk(spaces []Space) Check {
	var found []Check
	for _, s := range spaces {
		found = append(found, s.check())
	}
	return together(Disk, Unsure, "the file systems could not be looked at", found, "; ")
}

func (s *Space) check() Check {
	seen, f := fmt.Sprintf("%s (%s)", s.Path, s.For), cmp.Or(s.Folder, &File{Mode: fs.ModeDir, UID: s.Owner})
	return First(Disk,
		If(s.Err != nil, Unsure, "%s: %v", seen, s.Err),
		If(s.ReadOnly, "disk-read-only", "%s is on a read-only file system", seen),
		If(s.Free < fullBytes, "disk-full", "%s has %d bytes free", seen, s.Free),
		If(!s.NoInodes && s.Inodes < fullInodes, "disk-full", "%s has no inode free", seen),
		If(!f.Mode.IsDir() || f.UID != s.Owner || !f.trusted(s.Owner) && f.Mode&fs.ModeSticky == 0, "record-unsafe", "%s is %s", seen, f.describe()),
		If(s.Free < lowBytes, "disk-low", "%s has %s free", seen, size(s.Free)),
		If(!s.NoInodes && s.Inodes < lowInodes, "disk-low", "%s has %d inodes free", seen, s.Inodes),
		If(true, "", "%s has %s free", seen, size(s.Free)))
}

// size is a number of bytes for people.
func size(bytes uint64) string {
	if bytes >= 10<<30 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}
