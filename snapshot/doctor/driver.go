package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Driver is what a call of nvidia-smi showed.
type Driver struct {
	Modes []nvidiasmi.Mode
	Took  time.Duration
	Err   error // of package nvidiasmi
	// Restricted says that a guard may hide devices from the user who called it, so that
	// the others have other indices than for root.
	Restricted bool
}

// Version is that of the driver; empty if it is unknown.
func (d Driver) Version() string {
	if len(d.Modes) == 0 {
		return ""
	}
	return d.Modes[0].Driver
}

// slowCall is how long a call may take: each cycle of enforcement makes two.
const slowCall = 2 * time.Second

// CheckDriver judges a call of nvidia-smi.
func CheckDriver(d Driver) Check {
	if errors.Is(d.Err, nvidiasmi.ErrNotInstalled) { // its text has all of PATH
		return Problem(DriverState, "nvidia-smi-missing", "nvidia-smi was not found in PATH")
	}
	if d.Restricted && (errors.Is(d.Err, nvidiasmi.ErrNoDevices) || errors.Is(d.Err, nvidiasmi.ErrPermission)) {
		return Unknown(DriverState, "a guard shows this user no GPU: run it as root")
	}
	if d.Err != nil {
		return Problem(DriverState, causeOf(d.Err), "%s", OneLine(d.Err.Error()))
	}
	var off, hidden []snapshot.DeviceIndex
	for _, m := range d.Modes {
		switch {
		case m.Persistence == nil:
			hidden = append(hidden, m.Index)
		case !*m.Persistence:
			off = append(off, m.Index)
		}
	}
	seen := fmt.Sprintf("driver %s, %s, nvidia-smi took %s", cmp.Or(d.Version(), "unknown"), plural(len(d.Modes), "GPU"), milliseconds(d.Took))
	if d.Restricted {
		seen += "; a guard may hide others, and these have other indices"
	}
	switch {
	case len(off) > 0:
		return Problem(DriverState, "persistence-off", "%s; persistence mode is off on GPU %s", seen, indices(off))
	case d.Took > slowCall:
		return Problem(DriverState, "nvidia-smi-slow", "%s", seen)
	case len(hidden) > 0:
		return Problem(DriverState, "persistence-unknown", "%s; the persistence mode of GPU %s is unknown", seen, indices(hidden))
	}
	return Good(DriverState, "%s, persistence mode on", seen)
}

// causeOf is the cause of an error of nvidia-smi.
func causeOf(err error) Cause {
	for _, known := range []struct {
		err   error
		cause Cause
	}{
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

// indices are indices of devices as people write them.
func indices(of []snapshot.DeviceIndex) string {
	words := make([]string, len(of))
	for i, index := range of {
		words[i] = index.String()
	}
	return strings.Join(words, ",")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// milliseconds is a duration without digits that mean nothing.
func milliseconds(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// maxDetail is how long a text of a host may be, in bytes.
const maxDetail = 600

// OneLine is a foreign text for a detail.
func OneLine(foreign string) string { return text.OneLine(text.Cut(foreign, maxDetail)) }
