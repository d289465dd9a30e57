package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Driver is what a call of nvidia-smi showed.
type Driver struct {
	Modes nvidiasmi.Listing
	Took  time.Duration
	Err   error // of package nvidiasmi
	// Restricted says that a guard may hide devices from the user who called it, so that
	// the others have other indices than for root.
	Restricted bool
}

// Version is that of the driver; empty if it is unknown.
func (d Driver) Version() string {
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
func CheckDriver(d Driver) Check {
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
	count := plural(len(d.Modes.GPUs), "GPU")
	if failed > 0 {
		count = fmt.Sprintf("%d of %s", len(d.Modes.GPUs)-failed, count)
	}
	seen := fmt.Sprintf("driver %s, %s, nvidia-smi took %s", cmp.Or(d.Version(), "unknown"), count, d.Took.Round(precision))
	if d.Restricted {
		seen += "; a guard may hide others, and these have other indices"
	}
	cause := causeOf(d.Err)
	return First(DriverState,
		If(cause == "nvidia-smi-missing", cause, "nvidia-smi was not found in PATH"), // the error has all of PATH
		If(d.Restricted && (cause == "no-gpus" || cause == "driver-permission"), Unsure, "a guard shows this user no GPU: run it as root"),
		If(d.Err != nil, cause, "%v", d.Err),
		If(failed > 0, "gpu-failed", "%s%s", seen, unsure),
		If(unsure != "", "gpu-values-unknown", "%s%s", seen, unsure),
		If(len(d.Modes.Warnings) > 0, "driver-warning", "%s; it says: %s", seen, strings.Join(d.Modes.Warnings, "; ")),
		If(off != "", "persistence-off", "%s; persistence mode is off on GPU %s", seen, off),
		If(d.Took > slowCall, "nvidia-smi-slow", "%s", seen),
		If(hidden != "", "persistence-unknown", "%s; the persistence mode of GPU %s is unknown", seen, hidden),
		If(true, "", "%s, persistence mode on", seen))
}

// causeOf is the cause of an error of nvidia-smi.
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

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// maxDetail is how long a text of a host may be, in bytes.
const maxDetail = 600

// OneLine is a foreign text for a detail.
func OneLine(foreign string) string { return text.OneLine(text.Cut(foreign, maxDetail)) }
