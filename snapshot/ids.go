package snapshot

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Hostname names a GPU host as the administrator wrote it.
type Hostname string

// Username is a Linux account name; empty if the host did not report it.
type Username string

// EnvID identifies an environment on its host: in 1.4.3 the PID of the first shell, but any short printable text is
// valid. Empty for a process outside all environments.
type EnvID string

// NoEnvironment is how the lines of 1.4.3 say that a process is in no environment.
const NoEnvironment = "N/A"

// Shown is the id as a line names it, safe to show; NoEnvironment for none.
func (id EnvID) Shown() string {
	if id == "" {
		return NoEnvironment
	}
	return text.Shown(string(id))
}

// GPUUUID is the identity of a device ("GPU-…") or MIG instance ("MIG-…"). Unlike an index, it stays.
type GPUUUID string

// UID is the kernel's numeric user id.
type UID uint32

// NoUID is the owner of an environment that can't be read: the kernel gives this uid to no user.
const NoUID UID = 1<<32 - 1

// PID is a process id. It identifies a process only with its StartTime, since the kernel reuses PIDs.
type PID int32

// StartTime is field 22 of /proc/PID/stat: clock ticks since boot. 0 is unknown, as always in 1.4.3's format.
type StartTime uint64

// startTick is the unit of start times: 1/USER_HZ, which is the same on all platforms that Go supports.
const startTick = 10 * time.Millisecond

// Sub is the time between two start times.
func (t StartTime) Sub(earlier StartTime) time.Duration {
	return time.Duration(int64(t)-int64(earlier)) * startTick
}

// Before is the start time that was d earlier, or 0 before the boot.
func (t StartTime) Before(d time.Duration) StartTime {
	return StartTime(max(int64(t)-int64(d/startTick), 0))
}

// DeviceIndex is the index of a device on its host in nvidia-smi's order, which is the order of the PCI bus.
type DeviceIndex int

// String renders the index as nvidia-smi and the state files write it.
func (i DeviceIndex) String() string { return strconv.Itoa(int(i)) }

// ClaimVariable is the variable by which a process claims its environment.
const ClaimVariable = "GENV_ENVIRONMENT_ID"

// Claim is the environment that this value of ClaimVariable claims. An id that can't be shown and stored (CheckName),
// which 1.4.3 takes, has one made of its hash.
func Claim(value string) EnvID {
	if CheckName("eid", value) != nil {
		sum := sha256.Sum256([]byte(value))
		return EnvID(fmt.Sprintf("odd-%x", sum[:8]))
	}
	return EnvID(value)
}

const maxNameLength = 256

// CheckName is CheckText for names and ids in our state files, of at most 256 bytes.
func CheckName(name, s string) error {
	if len(s) > maxNameLength {
		return fmt.Errorf("%w: %s is longer than %d bytes", ErrInvalid, name, maxNameLength)
	}
	return CheckText(name, s)
}

// CheckText refuses all but UTF-8 without control characters, of at most 4096 bytes. The error wraps ErrInvalid.
func CheckText(name, s string) error {
	if len(s) > maxTextLength {
		return fmt.Errorf("%w: %s is longer than %d bytes", ErrInvalid, name, maxTextLength)
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("%w: %s %q contains a control character or is not UTF-8", ErrInvalid, name, s)
	}
	return nil
}
