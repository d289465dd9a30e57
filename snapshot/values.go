package snapshot

import (
	"cmp"
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

// Username is a Linux account name; empty if not reported.
type Username string

// EnvID identifies an environment on its host: a short printable text, a PID in 1.4.3. Empty for none.
type EnvID string

const NoEnvironment = "N/A" // in the lines of 1.4.3

// Shown is the id, safe to show; NoEnvironment for none.
func (id EnvID) Shown() string {
	if id == "" {
		return NoEnvironment
	}
	return text.Shown(string(id))
}

// GPUUUID identifies a device ("GPU-…") or MIG instance ("MIG-…"). Unlike an index, it is stable.
type GPUUUID string

// UID is the kernel's numeric user id.
type UID uint32

// NoUID is the owner of an environment that can't be read. The kernel gives this uid to no user.
const NoUID UID = 1<<32 - 1

// PID identifies a process only with its StartTime, since the kernel reuses PIDs.
type PID int32

// StartTime is field 22 of /proc/PID/stat: clock ticks since boot. 0 is unknown, always in 1.4.3's format.
type StartTime uint64

const Tick = 10 * time.Millisecond // unit of StartTime: 1/USER_HZ on all platforms that Go supports

// Sub returns the duration between two start times.
func (t StartTime) Sub(earlier StartTime) time.Duration {
	return time.Duration(int64(t)-int64(earlier)) * Tick
}

// Before returns the start time d earlier, or 0 before the boot.
func (t StartTime) Before(d time.Duration) StartTime {
	return StartTime(max(int64(t)-int64(d/Tick), 0))
}

// DeviceIndex is a device's index on its host in nvidia-smi's order, that of the PCI bus.
type DeviceIndex int

// String formats the index as nvidia-smi and the state files do.
func (i DeviceIndex) String() string { return strconv.Itoa(int(i)) }

const ClaimVariable = "GENV_ENVIRONMENT_ID" // by which a process claims its environment

// Claim is the environment in a value of ClaimVariable. A hash replaces an id that can't be shown (1.4.3).
func Claim(value string) EnvID {
	if CheckName("eid", value) != nil {
		sum := sha256.Sum256([]byte(value))
		return EnvID(fmt.Sprintf("odd-%x", sum[:8]))
	}
	return EnvID(value)
}

const maxNameLength = 256

// CheckName is CheckText for names and ids in state files, of at most 256 bytes.
func CheckName(name, s string) error {
	if len(s) > maxNameLength {
		return fmt.Errorf("%w: %s is longer than %d bytes", ErrInvalid, name, maxNameLength)
	}
	return CheckText(name, s)
}

// CheckText accepts at most 4096 bytes of UTF-8 without control characters. Its error wraps ErrInvalid.
func CheckText(name, s string) error {
	if len(s) > maxTextLength {
		return fmt.Errorf("%w: %s is longer than %d bytes", ErrInvalid, name, maxTextLength)
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return fmt.Errorf("%w: %s %q contains a control character or is not UTF-8", ErrInvalid, name, s)
	}
	return nil
}

const dateLayout = "02/01/2006 15:04:05" // of 1.4.3: the host's local time, without a zone

// Date is a time on a host's own clock, in whole seconds without a zone. The zero Date is none.
type Date struct {
	// second counts from year 1: a time.Time would be three times as large, with a pointer.
	second int64
}

const yearOne = -62135596800

func (d Date) wall() time.Time { return time.Unix(d.second+yearOne, 0).UTC() }

// ParseDate reads "DD/MM/YYYY HH:MM:SS".
func ParseDate(text string) (Date, error) {
	t, err := time.ParseInLocation(dateLayout, text, time.UTC)
	// time.Parse accepts fractions of a second and single digits.
	if err != nil || t.Format(dateLayout) != text {
		return Date{}, fmt.Errorf("%q is not a date of the form DD/MM/YYYY HH:MM:SS", text)
	}
	return DateOf(t), nil
}

// DateOf is the date at t on a clock in t's location.
func DateOf(t time.Time) Date {
	_, east := t.Zone()
	return Date{second: t.Unix() + int64(east) - yearOne}
}

// In returns the time at which a clock in loc shows this date.
func (d Date) In(loc *time.Location) time.Time {
	w := d.wall()
	return time.Date(w.Year(), w.Month(), w.Day(), w.Hour(), w.Minute(), w.Second(), 0, loc)
}

// Compare is negative if d is before e, and positive if d is after e.
func (d Date) Compare(e Date) int { return cmp.Compare(d.second, e.second) }

// IsZero says whether there is no date.
func (d Date) IsZero() bool { return d.second == 0 }

// String formats the date as in the state files.
func (d Date) String() string { return d.wall().Format(dateLayout) }

// ISO formats the date as YYYY-MM-DDTHH:MM:SS, without a zone, for JSON.
func (d Date) ISO() string { return d.wall().Format("2006-01-02T15:04:05") }

// MarshalText implements encoding.TextMarshaler.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Date) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDate(string(text))
	return err
}

// Memory is whole bytes, or has a unit b, k, m, g (1000s) or ki, mi, gi (1024s). It keeps its text, so that state files
// don't change. The zero Memory is unknown, not 0 bytes.
type Memory struct {
	text  string
	bytes int64
}

// ParseMemory parses an amount such as "4g", "81559mi" or "44040192", and keeps it in lower case.
func ParseMemory(amount string) (Memory, error) {
	bytes, err := text.ParseMemory(amount)
	if err != nil {
		return Memory{}, err
	}
	return Memory{text: strings.ToLower(amount), bytes: bytes}, nil
}

// MustMemory is ParseMemory for constants; it panics on an error.
func MustMemory(amount string) Memory {
	m, err := ParseMemory(amount)
	if err != nil {
		panic(err)
	}
	return m
}

// MiB is n mebibytes, nvidia-smi's unit.
func MiB(n int64) Memory {
	return Memory{text: strconv.FormatInt(n, 10) + "mi", bytes: n << 20}
}

// MachineKiB is for a device that shares the machine's memory: 1.4.3 needs a number there.
func MachineKiB(n int64) Memory {
	return Memory{text: strconv.FormatInt(n, 10) + "ki", bytes: n << 10}
}

// OfMachine says whether it has MachineKiB's notation, which nvidia-smi never has.
func (m Memory) OfMachine() bool { return strings.HasSuffix(m.text, "ki") }

// Known says whether the amount is known.
func (m Memory) Known() bool { return m.text != "" }

// Bytes is the amount in bytes; 0 if unknown.
func (m Memory) Bytes() int64 { return m.bytes }

// String is the amount as written; "" if unknown.
func (m Memory) String() string { return m.text }

// MarshalText implements encoding.TextMarshaler.
func (m Memory) MarshalText() ([]byte, error) { return []byte(m.text), nil }

// UnmarshalText implements encoding.TextUnmarshaler; the empty text is unknown.
func (m *Memory) UnmarshalText(text []byte) (err error) {
	*m = Memory{}
	if len(text) > 0 {
		*m, err = ParseMemory(string(text))
	}
	return err
}
