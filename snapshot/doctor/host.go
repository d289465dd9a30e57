package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// initialPID is the inode of the initial PID namespace (PROC_PID_INIT_INO of include/linux/proc_ns.h).
const initialPID = 0xEFFFFFFC

// CheckNamespace judges the PID namespace in which genv runs, by its inode, or 0 if it is unknown. A refusal
// says why its PIDs may not be those of the state files; without one they are.
func CheckNamespace(inode uint64, refusal string) Check {
	return First(PIDNamespace,
		If(inode == 0, Unsure, "/proc doesn't show the PID namespace"),
		If(refusal != "", "other-pid-namespace", "%s", refusal),
		If(inode == initialPID, "", "the initial PID namespace"),
		If(true, "", "PID namespace %d, which is not the initial one and is that of the state files", inode))
}

// CheckServices judges genv's units by the output of showUnits: lines KEY=VALUE, with
// an empty line between units. absent says that the machine doesn't run systemd.
func CheckServices(absent bool, output string, err error) Check {
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
	if c := First(Services,
		If(absent, Unsure, "this machine doesn't run systemd"),
		If(err != nil, "services-unknown", "%v", err),
		If(!known, "services-unknown", "systemctl printed nothing about genv's units")); c.Status != "" {
		return c
	}
	return together(Services, "", "none of genv's units is installed", found, ", ")
}

// checkUnit judges a unit: active is active, inactive, failed …; file enabled, disabled, static, or empty for none.
func checkUnit(name, active, file string) Check {
	state := fmt.Sprintf("%s is %s and %s", strings.TrimSuffix(OneLine(name), ".service"), cmp.Or(active, "unknown"),
		cmp.Or(file, "unknown"))
	running := slices.Contains([]string{"active", "activating", "reloading"}, active)
	return First(Services,
		If(active == "failed", "service-failed", "%s", state),
		If(!running && strings.HasPrefix(file, "enabled"), "service-stopped", "%s", state),
		If(running && file == "disabled", "service-disabled", "%s", state),
		If(true, "", "%s", state))
}

// WithTrial is the check of a genv, with what came of trying what acting needs; nil if it wasn't tried.
func WithTrial(c Check, t *snapshot.Trial) Check {
	if t == nil {
		return c
	}
	found := Worst(First(Genv,
		If(t.Unable != "", "nothing-can-end", "nothing can be ended there: %s", t.Unable),
		If(t.State != "", "nothing-can-be-detached", "nothing can be detached there: %s", t.State)), c)
	if t.NoPidfds {
		found.Detail += "; no pidfds (Linux before 5.3, or a filter of system calls): processes are verified right " +
			"before kill(2)"
	}
	return found
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
	Folder   *FileFacts // the folder of the record, which Owner has to own; nil if that doesn't matter
	Owner    snapshot.UID
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
	seen, f := fmt.Sprintf("%s (%s)", s.Path, s.For), cmp.Or(s.Folder, &FileFacts{Mode: fs.ModeDir, UID: s.Owner})
	return First(Disk,
		If(s.Err != nil, Unsure, "%s: %v", seen, s.Err),
		If(s.ReadOnly, "disk-read-only", "%s is on a read-only file system", seen),
		If(s.Free < fullBytes, "disk-full", "%s has %d bytes free", seen, s.Free),
		If(!s.NoInodes && s.Inodes < fullInodes, "disk-full", "%s has no inode free", seen),
		If(!f.Mode.IsDir() || f.UID != s.Owner || !f.trusted(s.Owner) && f.Mode&fs.ModeSticky == 0, "record-unsafe",
			"%s is %s", seen, f.describe()),
		If(s.Free < lowBytes, "disk-low", "%s has %s free", seen, size(s.Free)),
		If(!s.NoInodes && s.Inodes < lowInodes, "disk-low", "%s has %d inodes free", seen, s.Inodes),
		If(true, "", "%s has %s free", seen, size(s.Free)))
}

func size(bytes uint64) string {
	if bytes >= 10<<30 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// DriverCall is what a call of nvidia-smi showed.
type DriverCall struct {
	Modes nvidiasmi.Listing
	Took  time.Duration
	Err   error // of package nvidiasmi
	// Restricted: a guard may hide devices from the caller, so that others have other indices than for root.
	Restricted bool
}

// Version is that of the driver; empty if it is unknown.
func (d DriverCall) Version() string {
	for i := range d.Modes.GPUs {
		if version := d.Modes.GPUs[i].Driver; version != "" {
			return version
		}
	}
	return ""
}

// slowCall is how long a call may take: each cycle of enforcement makes two.
const slowCall = 2 * time.Second

// CheckDriver judges a call of nvidia-smi.
func CheckDriver(d DriverCall) Check {
	off := gpus(d.Modes.GPUs, func(g *nvidiasmi.GPU) bool { return g.Persistence != nil && !*g.Persistence })
	hidden := gpus(d.Modes.GPUs, func(g *nvidiasmi.GPU) bool { return g.Persistence == nil && !g.Failed })
	failed, unsure := 0, ""
	for i := range d.Modes.GPUs {
		g := &d.Modes.GPUs[i]
		if g.Failed {
			failed++
		}
		if g.Problem != "" {
			unsure += fmt.Sprintf("; GPU %d: %s", g.Index, g.Problem)
		}
	}
	precision := 10 * time.Millisecond
	if d.Took < time.Second {
		precision = time.Millisecond
	}
	count := text.Plural(len(d.Modes.GPUs), "GPU")
	if failed > 0 {
		count = fmt.Sprintf("%d of %s", len(d.Modes.GPUs)-failed, count)
	}
	seen := fmt.Sprintf("driver %s, %s, nvidia-smi took %s", cmp.Or(d.Version(), "unknown"), count,
		d.Took.Round(precision))
	if d.Restricted {
		seen += "; a guard may hide others, and these have other indices"
	}
	cause := causeOf(d.Err)
	return First(DriverState,
		If(cause == "nvidia-smi-missing", cause, "nvidia-smi was not found in PATH"), // the error has all of PATH
		If(d.Restricted && (cause == "no-gpus" || cause == "driver-permission"), Unsure,
			"a guard shows this user no GPU: run it as root"),
		If(d.Err != nil, cause, "%v", d.Err),
		If(failed > 0, "gpu-failed", "%s%s", seen, unsure),
		If(unsure != "", "gpu-values-unknown", "%s%s", seen, unsure),
		If(len(d.Modes.Warnings) > 0, "driver-warning", "%s; it says: %s", seen, strings.Join(d.Modes.Warnings, "; ")),
		If(off != "", "persistence-off", "%s; persistence mode is off on GPU %s", seen, off),
		If(d.Took > slowCall, "nvidia-smi-slow", "%s", seen),
		If(hidden != "", "persistence-unknown", "%s; the persistence mode of GPU %s is unknown", seen, hidden),
		If(true, "", "%s, persistence mode on", seen))
}

func causeOf(err error) Cause {
	for _, known := range []struct {
		err   error
		cause Cause
	}{
		{nvidiasmi.ErrNotInstalled, "nvidia-smi-missing"},
		{nvidiasmi.ErrNoDriver, "no-driver"},
		{nvidiasmi.ErrVersionMismatch, "driver-version-mismatch"},
		{nvidiasmi.ErrNoDevices, "no-gpus"},
		{nvidiasmi.ErrGPULost, "gpu-lost"},
		{nvidiasmi.ErrPermission, "driver-permission"},
		{nvidiasmi.ErrTimeout, "nvidia-smi-hung"},
		{nvidiasmi.ErrHung, "nvidia-smi-hung"},
	} {
		if errors.Is(err, known.err) {
			return known.cause
		}
	}
	return "nvidia-smi-failed"
}

// gpus are the indices of those that match, as people write them.
func gpus(list []nvidiasmi.GPU, matches func(*nvidiasmi.GPU) bool) string {
	var words []string
	for i := range list {
		if matches(&list[i]) {
			words = append(words, list[i].Index.String())
		}
	}
	return strings.Join(words, ",")
}

// maxDetail is how long a text of a host may be, in bytes.
const maxDetail = 600

// OneLine is a foreign text for a detail.
func OneLine(foreign string) string { return text.OneLine(text.Cut(foreign, maxDetail)) }
