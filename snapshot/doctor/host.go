package doctor

import (
	"cmp"
	"fmt"
	"strings"
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
	switch {
	case n.Inode == 0:
		return Unknown(PIDNamespace, "/proc doesn't show the PID namespace")
	case n.Refusal != "":
		return Problem(PIDNamespace, "other-pid-namespace", "%s", OneLine(n.Refusal))
	case n.Inode != initialPID && n.Unsure:
		return Unknown(PIDNamespace, "PID namespace %d, which is not the initial one: whether the state files are of it, only genv knows", n.Inode)
	case n.Inode != initialPID:
		return Good(PIDNamespace, "PID namespace %d, which is not the initial one and is that of the state files", n.Inode)
	}
	return Good(PIDNamespace, "the initial PID namespace")
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
	seen := "Linux " + cmp.Or(OneLine(k.Release), "unknown")
	switch {
	case parsed < 2 || major <= 0:
		return Unknown(Guard, "the kernel's version is unknown (%q)", OneLine(k.Release))
	case major < 5 || major == 5 && minor < 8:
		return Problem(Guard, "old-kernel", "%s", seen)
	case k.BPF != nil && !*k.BPF:
		return Problem(Guard, "no-bpf", "%s has no bpf(2)", seen)
	case k.Cgroup2 == "":
		return Problem(Guard, "no-cgroup2", "%s, without cgroup2", seen)
	case k.BPF == nil:
		return Good(Guard, "%s, cgroup2 at %s", seen, OneLine(k.Cgroup2))
	}
	return Good(Guard, "%s, cgroup2 at %s, BPF", seen, OneLine(k.Cgroup2))
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
	switch {
	case s.Absent:
		return Unknown(Services, "this machine doesn't run systemd")
	case s.Err != nil:
		return Problem(Services, "services-unknown", "%s", OneLine(s.Err.Error()))
	}
	var found []Check
	for _, u := range s.Units {
		if u.Load != "not-found" && u.Load != "masked" {
			found = append(found, u.check())
		}
	}
	if len(found) == 0 {
		return Good(Services, "none of genv's units is installed")
	}
	return together(found, ", ")
}

func (u *Unit) check() Check {
	state := fmt.Sprintf("%s is %s and %s", strings.TrimSuffix(OneLine(u.Name), ".service"), cmp.Or(OneLine(u.Active), "unknown"), cmp.Or(OneLine(u.File), "unknown"))
	enabled := strings.HasPrefix(u.File, "enabled")
	running := u.Active == "active" || u.Active == "activating" || u.Active == "reloading"
	switch {
	case u.Active == "failed":
		return Problem(Services, "service-failed", "%s", state)
	case enabled && !running:
		return Problem(Services, "service-stopped", "%s", state)
	case running && u.File == "disabled":
		return Problem(Services, "service-disabled", "%s", state)
	}
	return Good(Services, "%s", state)
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
