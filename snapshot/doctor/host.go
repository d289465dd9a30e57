package doctor

import (
	"fmt"
	"strconv"
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
		return Problem(PIDNamespace, OtherNamespace, "%s", oneLine(n.Refusal))
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
	major, minor, ok := parseRelease(k.Release)
	seen := "Linux " + orUnknown(oneLine(k.Release))
	switch {
	case !ok:
		return Unknown(Guard, "the kernel's version is unknown (%q)", oneLine(k.Release))
	case major < 5 || major == 5 && minor < 8:
		return Problem(Guard, OldKernel, "%s", seen)
	case k.BPF != nil && !*k.BPF:
		return Problem(Guard, NoBPF, "%s has no bpf(2)", seen)
	case k.Cgroup2 == "":
		return Problem(Guard, NoCgroup2, "%s, without cgroup2", seen)
	case k.BPF == nil:
		return Good(Guard, "%s, cgroup2 at %s", seen, oneLine(k.Cgroup2))
	}
	return Good(Guard, "%s, cgroup2 at %s, BPF", seen, oneLine(k.Cgroup2))
}

// parseRelease reads the beginning of a release such as 6.1.0-18-amd64.
func parseRelease(release string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(release, ".")
	digits := rest
	if end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = rest[:end]
	}
	major, errMajor := strconv.Atoi(first)
	minor, errMinor := strconv.Atoi(digits)
	return major, minor, errMajor == nil && errMinor == nil && major > 0
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
		var u Unit
		for line := range strings.SplitSeq(block, "\n") {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch key {
			case "Id":
				u.Name = value
			case "LoadState":
				u.Load = value
			case "ActiveState":
				u.Active = value
			case "UnitFileState":
				u.File = value
			}
		}
		if u.Name != "" {
			units = append(units, u)
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
		return Problem(Services, ServiceUnknown, "%s", oneLine(s.Err.Error()))
	}
	var found []Check
	for _, u := range s.Units {
		if c, installed := checkUnit(u); installed {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return Good(Services, "none of genv's units is installed")
	}
	if bad := worst(found); bad.Status != OK {
		return bad
	}
	var running []string
	for _, c := range found {
		running = append(running, c.Detail)
	}
	return Good(Services, "%s", strings.Join(running, ", "))
}

func checkUnit(u Unit) (c Check, installed bool) {
	name := strings.TrimSuffix(oneLine(u.Name), ".service")
	state := fmt.Sprintf("%s is %s and %s", name, orUnknown(oneLine(u.Active)), orUnknown(oneLine(u.File)))
	enabled := strings.HasPrefix(u.File, "enabled")
	running := u.Active == "active" || u.Active == "activating" || u.Active == "reloading"
	switch {
	case u.Load == "not-found" || u.Load == "masked":
		return Check{}, false
	case u.Active == "failed":
		return Problem(Services, ServiceFailed, "%s", state), true
	case enabled && !running:
		return Problem(Services, ServiceStopped, "%s", state), true
	case running && u.File == "disabled":
		return Problem(Services, ServiceDisabled, "%s", state), true
	}
	return Good(Services, "%s", state), true
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
			return oneLine(strings.Trim(name, `"'`))
		}
	}
	return ""
}
