package snapshot

import (
	"fmt"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// Hostname names a GPU host as the administrator wrote it.
type Hostname string

// Username is a Linux account name. The empty Username means that the host
// could not tell it.
type Username string

// EnvID identifies an environment on its host. 1.4.3 uses the PID of the shell
// that was activated first, but any short text without control characters is
// valid. The empty EnvID means "in no environment".
type EnvID string

// GPUUUID is NVIDIA's identity of a device ("GPU-…") or of a MIG instance
// ("MIG-…"). It stays the same when indices are assigned again.
type GPUUUID string

// UID is the kernel's numeric user id.
type UID uint32

// PID is a process id on a host. It says which process was meant only together
// with the process's StartTime: the kernel hands numbers out again.
type PID int32

// StartTime is field 22 of /proc/PID/stat: clock ticks between boot and the
// start of the process. 0 means that the host did not tell (the 1.4.3 format
// has no room for it).
type StartTime uint64

// DeviceIndex is the index of a device on its host in nvidia-smi's order, which
// is the order of the PCI bus.
type DeviceIndex int

// String renders the index as nvidia-smi and the state files write it.
func (i DeviceIndex) String() string { return strconv.Itoa(int(i)) }

// ClaimVariable is the variable by which a process claims its environment.
const ClaimVariable = "GENV_ENVIRONMENT_ID"

// Claim is the environment that a process claims by this value of
// ClaimVariable. A value that no environment can have as its id (see
// CheckName) claims none: otherwise garbage would be a way out of every rule.
func Claim(value string) EnvID {
	if CheckName("eid", value) != nil {
		return ""
	}
	return EnvID(value)
}

// maxNameLength is of a name or an id in our own state files, in bytes.
const maxNameLength = 256

// CheckName says whether a name or an id may be in our state files: CheckText, and
// at most 256 bytes.
func CheckName(name, s string) error {
	if len(s) > maxNameLength {
		return fmt.Errorf("%w: %s is longer than %d bytes", ErrInvalid, name, maxNameLength)
	}
	return CheckText(name, s)
}

// CheckText says whether a host may say a text: UTF-8, without control characters,
// of at most 4096 bytes. Its error wraps ErrInvalid.
func CheckText(name, s string) error {
	if len(s) > maxTextLength {
		return fmt.Errorf("%w: %s is longer than %d bytes", ErrInvalid, name, maxTextLength)
	}
	for i, r := range s {
		if _, size := utf8.DecodeRuneInString(s[i:]); unicode.IsControl(r) || (r == utf8.RuneError && size == 1) {
			return fmt.Errorf("%w: %s %q has a control character or is not UTF-8", ErrInvalid, name, s)
		}
	}
	return nil
}
