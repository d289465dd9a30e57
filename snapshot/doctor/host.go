package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/text"
)

const initialPID = 0xEFFFFFFC // the inode of the initial PID namespace (PROC_PID_INIT_INO of include/linux/proc_ns.h)

// CheckNamespace judges genv's PID namespace. inode 0 is unknown; refusal says why its PIDs may not be the state
// files'.
func CheckNamespace(inode uint64, refusal string) Check {
	return Judge(PIDNamespace, fmt.Sprintf("PID namespace %d, that of the state files", inode),
		If(inode == 0, Unsure, "/proc doesn't show the PID namespace"),
		If(refusal != "", "other-pid-namespace", "%s", refusal),
		If(inode == initialPID, "", "the initial PID namespace"))
}

// CheckServices judges genv's units by `systemctl show`: lines KEY=VALUE, with an empty line between units.
func CheckServices(output string, err error) Check {
	var found []Check
	known := false
	for block := range strings.SplitSeq(output, "\n\n") {
		unit := map[string]string{}
		for line := range strings.Lines(block) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			unit[key] = value
		}
		known = known || unit["Id"] != ""
		if unit["Id"] != "" && unit["LoadState"] != "not-found" && unit["LoadState"] != "masked" {
			found = append(found, checkUnit(unit["Id"], unit["ActiveState"], unit["UnitFileState"]))
		}
	}
	return Judge(Services, "none of genv's units is installed",
		If(err != nil, "services-unknown", "%v", err),
		If(!known, "services-unknown", "systemctl printed nothing"),
		together(", ", found))
}

func checkUnit(name, active, file string) Check {
	state := fmt.Sprintf("%s is %s and %s", strings.TrimSuffix(OneLine(name), ".service"), cmp.Or(active, "unknown"),
		cmp.Or(file, "unknown"))
	running := slices.Contains([]string{"active", "activating", "reloading"}, active)
	return Judge(Services, state,
		If(active == "failed", "service-failed", "%s", state),
		If(!running && strings.HasPrefix(file, "enabled"), "service-stopped", "%s", state),
		If(running && file == "disabled", "service-disabled", "%s", state))
}

// WithTrial adds a trial's result to the check of a genv; nil for none.
func WithTrial(c Check, t *snapshot.Trial) Check {
	if t == nil {
		return c
	}
	found := Worst(First(Genv,
		If(t.Unable != "", "nothing-can-end", "no process can be ended: %s", t.Unable),
		If(t.State != "", "nothing-can-be-detached", "nothing can be detached: %s", t.State)), c)
	if t.NoPidfds {
		found.Detail += "; the kernel has no pidfds"
	}
	return found
}

// OSName reads os-release(5).
func OSName(release string) string {
	_, name, _ := strings.Cut("\n"+release, "\nPRETTY_NAME=")
	name, _, _ = strings.Cut(name, "\n")
	return OneLine(strings.Trim(strings.TrimSpace(name), `"'`))
}

// Space is a file system on which genv writes.
type Space struct {
	For      string // its use: the record, the state files, …
	Path     string // the folder, or its nearest existing parent
	Free     uint64 // bytes for the writer
	Inodes   uint64 // free ones; the maximum if unlimited
	ReadOnly bool
	Err      error
	Folder   *FileFacts // the record's folder, which Owner has to own; nil for others
	Owner    snapshot.UID
}

// Thresholds. The record of a busy day has some megabytes.
const (
	fullBytes, fullInodes = 1 << 20, 1
	lowBytes, lowInodes   = 200 << 20, 1000
)

// CheckDisk judges the file systems on which genv writes.
func CheckDisk(spaces []Space) Check {
	found := make([]Check, len(spaces))
	for i := range spaces {
		found[i] = spaces[i].check()
	}
	return First(Disk, together("; ", found))
}

func (s *Space) check() Check {
	seen, f := fmt.Sprintf("%s (%s)", s.Path, s.For), cmp.Or(s.Folder, ownFolder(s.Owner))
	free := text.GiB(int64(s.Free))
	if s.Inodes < lowInodes {
		free += fmt.Sprintf(" and %d inodes", s.Inodes)
	}
	return Judge(Disk, seen+" has "+free+" free",
		If(s.Err != nil, Unsure, "%s: %v", seen, s.Err),
		If(s.ReadOnly, "disk-read-only", "%s is on a read-only file system", seen),
		If(s.Free < fullBytes || s.Inodes < fullInodes, "disk-full", "%s has %s free", seen, free),
		If(!f.is(unix.S_IFDIR) || f.Uid != uint32(s.Owner) || f.Mode&0o022 != 0 && f.Mode&unix.S_ISVTX == 0,
			"record-unsafe", "%s is %s", seen, f.describe()),
		If(s.Free < lowBytes || s.Inodes < lowInodes, "disk-low", "%s has %s free", seen, free))
}

// DriverCall is the result of a call of nvidia-smi.
type DriverCall struct {
	Modes nvidiasmi.Listing
	Took  time.Duration
	Err   error // of package nvidiasmi
	// Restricted: a guard may hide devices from the caller, whose indices then differ from root's.
	Restricted bool
}

// Version is the driver's; empty if unknown.
func (d DriverCall) Version() string {
	for i := range d.Modes.GPUs {
		if version := d.Modes.GPUs[i].Driver; version != "" {
			return version
		}
	}
	return ""
}

// CheckDriver judges a call of nvidia-smi.
func CheckDriver(d DriverCall) Check {
	var off, unknown []snapshot.DeviceIndex
	failed, problems := 0, ""
	for i := range d.Modes.GPUs {
		g := &d.Modes.GPUs[i]
		switch {
		case g.Failed:
			failed++
		case g.Persistence == nil:
			unknown = append(unknown, g.Index)
		case !*g.Persistence:
			off = append(off, g.Index)
		}
		if g.Problem != "" {
			problems += fmt.Sprintf("; GPU %d: %s", g.Index, g.Problem)
		}
	}
	count := text.Plural(len(d.Modes.GPUs), "GPU")
	if failed > 0 {
		count = fmt.Sprintf("%d of %s", len(d.Modes.GPUs)-failed, count)
	}
	seen := fmt.Sprintf("driver %s, %s, nvidia-smi took %s", cmp.Or(d.Version(), "unknown"), count,
		d.Took.Round(time.Millisecond))
	if d.Restricted {
		seen += "; a guard may hide others"
	}
	cause := causeOf(d.Err)
	return Judge(DriverState, seen+", persistence mode on",
		If(cause == "nvidia-smi-missing", cause, "nvidia-smi was not found in PATH"), // the error has all of PATH
		If(d.Restricted && (cause == "no-gpus" || cause == "driver-permission"), Unsure,
			"a guard shows this user no GPU: run it as root"),
		If(d.Err != nil, cause, "%v", d.Err),
		If(failed > 0, "gpu-failed", "%s%s", seen, problems),
		If(problems != "", "gpu-values-unknown", "%s%s", seen, problems),
		If(len(d.Modes.Warnings) > 0, "driver-warning", "%s; it says: %s", seen, strings.Join(d.Modes.Warnings, "; ")),
		If(off != nil, "persistence-off", "%s; persistence mode off on GPU %s", seen, text.JoinIndices(off)),
		If(d.Took > 2*time.Second, "nvidia-smi-slow", "%s", seen),
		If(unknown != nil, "persistence-unknown", "%s; persistence mode unknown on GPU %s", seen,
			text.JoinIndices(unknown)))
}

func causeOf(err error) Cause {
	for cause, known := range map[Cause]error{
		"nvidia-smi-missing": nvidiasmi.ErrNotInstalled, "no-driver": nvidiasmi.ErrNoDriver,
		"driver-version-mismatch": nvidiasmi.ErrVersionMismatch, "no-gpus": nvidiasmi.ErrNoDevices,
		"gpu-lost": nvidiasmi.ErrGPULost, "driver-permission": nvidiasmi.ErrPermission,
	} {
		if errors.Is(err, known) {
			return cause
		}
	}
	if errors.Is(err, nvidiasmi.ErrTimeout) || errors.Is(err, nvidiasmi.ErrHung) {
		return "nvidia-smi-hung"
	}
	return "nvidia-smi-failed"
}

// OneLine bounds a foreign text for a detail to 600 bytes.
func OneLine(foreign string) string { return text.OneLine(text.Cut(foreign, 600)) }

// GuardState is the state of the kernel guard, and its last order.
type GuardState struct {
	Mode   snapshot.GuardMode `json:"mode"`             // now; unable if it can't carry out the order
	Reason string             `json:"reason,omitempty"` // why it differs from the order
	// Ordered is the mode of the last order since the boot.
	Ordered snapshot.GuardMode `json:"ordered,omitempty"`
	By      string             `json:"by,omitempty"`     // who gave that order
	Renewed time.Time          `json:"renewed,omitzero"` // last
	Veto    bool               `json:"veto,omitempty"`   // a file turns it off
}

func (g *GuardState) known() *GuardState {
	modes := []snapshot.GuardMode{snapshot.GuardOff, snapshot.GuardWatch, snapshot.GuardEnforce, "", snapshot.GuardUnable}
	if g == nil || g.Mode == "" || !slices.Contains(modes, g.Mode) || !slices.Contains(modes[:4], g.Ordered) {
		return nil
	}
	bounded := *g
	bounded.Reason, bounded.By = OneLine(g.Reason), text.OneLine(text.Cut(g.By, maxWord))
	return &bounded
}

func (g *GuardState) over() bool {
	return g.Mode == snapshot.GuardOff && !g.Veto && g.Ordered != "" && g.Ordered != snapshot.GuardOff
}

func (g *GuardState) order() string {
	return fmt.Sprintf("%s ordered %s, last at %s", g.By, g.Ordered, g.Renewed.Local().Format(time.DateTime))
}

func (g *GuardState) shown() string {
	return "the guard is " + strings.TrimSuffix(string(g.Mode)+": "+g.Reason, ": ")
}

// CheckKernel judges whether the kernel can guard devices: by a BPF program on cgroup2 with a ring buffer (Linux 5.8).
// mounts is the text of /proc/self/mounts, bpf whether the kernel has bpf(2).
func CheckKernel(release, mounts string, bpf bool) Check {
	var major, minor int
	parsed, _ := fmt.Sscanf(release, "%d.%d", &major, &minor) // such as 6.1.0-18-amd64
	seen, cgroup2 := "Linux "+release, ""
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); cgroup2 == "" && len(f) >= 3 && f[2] == "cgroup2" {
			cgroup2 = f[1]
		}
	}
	return Judge(Guard, fmt.Sprintf("%s, cgroup2 at %s, BPF", seen, cgroup2),
		If(parsed < 2 || major <= 0, Unsure, "the kernel's version is unknown (%q)", OneLine(release)),
		If(major < 5 || major == 5 && minor < 8, "old-kernel", "%s", seen),
		If(!bpf, "no-bpf", "%s has no bpf(2)", seen),
		If(cgroup2 == "", "no-cgroup2", "%s, without cgroup2", seen))
}

// CheckGuard judges whether the guard obeys its order; a host knows no policy. g is nil if the guard is unknown.
func CheckGuard(kernel Check, g *GuardState) Check {
	if g == nil {
		return kernel
	}
	return First(Guard,
		If(g.Mode == snapshot.GuardUnable, "guard-unable", "%s, which fails: %s (%s)", g.order(), g.Reason, kernel.Detail),
		If(g.over(), "guard-not-renewed", "%s, and not since: it is off (%s)", g.order(), kernel.Detail),
		If(kernel.Status == OK, "", "%s; %s", kernel.Detail, g.shown()),
		kernel)
}

// CompareGuard judges whether the guard obeys the policy ("" is off). own is the host's check.
func CompareGuard(own Check, g *GuardState, wanted snapshot.GuardMode) Check {
	if wanted == "" || wanted == snapshot.GuardOff {
		return own
	}
	says := fmt.Sprintf("the policy says %s, and ", wanted)
	if g == nil {
		return Unknown(Guard, "%swhat the guard does is unknown: %s", says, own.Detail)
	}
	return First(Guard,
		If(g.Mode == wanted, "", "%s, as the policy says", own.Detail),
		If(slices.Contains([]Cause{"old-kernel", "no-bpf", "no-cgroup2"}, own.Cause), "guard-impossible",
			"%sthe host can't: %s", says, own.Detail),
		If(g.Mode == snapshot.GuardUnable, "guard-unable", "%sthe host can't: %s", says, g.Reason),
		If(g.Veto || g.Ordered == snapshot.GuardOff, "guard-turned-off", "%s%s", says, g.shown()),
		If(g.Ordered == "", "guard-not-ordered", "%sno controller has ordered it", says),
		If(g.over(), "guard-not-ordered", "%s%s, and not since", says, g.order()),
		If(g.Ordered != wanted, "guard-other-order", "%s%s", says, g.order()),
		If(true, "guard-unable", "%s%s", says, g.shown()))
}
