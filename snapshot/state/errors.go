package state

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrCorrupt is wrapped if a state file can't be decoded. The file is left
	// unchanged, and a copy is kept: see CorruptError. Only Store.ResetEnvironments
	// and Store.ResetDevices replace it.
	ErrCorrupt = errors.New("state is corrupt")
	// ErrLost is wrapped if a state file is missing although root has a copy, which
	// only root's genv restores.
	ErrLost = errors.New("state is lost")
	// ErrUnsafe is wrapped if a state file is a link, a FIFO, too large or anything
	// else that genv does not create. It was not read.
	ErrUnsafe = errors.New("unsafe state file")
	// ErrBusy is wrapped if a lock could not be taken in time: see BusyError.
	ErrBusy = errors.New("state is locked")
	// ErrNoDevices says that there is no devices.json yet: call nvidia-smi, without any
	// lock, and pass its devices to Store.RegisterDevices.
	ErrNoDevices = errors.New("the devices of this host are not registered yet")
	// ErrUnavailable is wrapped if requested devices have no room or don't exist: see
	// TooManyError, TakenError and NoDeviceError.
	ErrUnavailable = errors.New("not available")
	// ErrRequest is wrapped if a request is invalid in any state.
	ErrRequest = errors.New("not a valid request")
	// ErrNotOwner says that the environment belongs to another user.
	ErrNotOwner = errors.New("not your environment")
	// ErrNoEnvironment says that no such environment is registered.
	ErrNoEnvironment = errors.New("no such environment")
	// ErrActive says that a process is already in another environment.
	ErrActive = errors.New("already in an active environment")
)

// CorruptError names a corrupt file, the cause, and the copy of the file. It wraps
// ErrCorrupt and the cause.
type CorruptError struct {
	Path  string
	Copy  string // empty if no copy could be written
	Cause error
}

func (e *CorruptError) Error() string {
	kept := "no copy of it could be kept"
	if e.Copy != "" {
		kept = "a copy is kept as " + e.Copy
	}
	return fmt.Sprintf("%s: %v: %v; it was left as it is and %s: ask root to run `genv envs`, which restores it from root's copy if there is one, or to start over with --reset",
		e.Path, ErrCorrupt, e.Cause, kept)
}

// Unwrap makes errors.Is find ErrCorrupt and the cause.
func (e *CorruptError) Unwrap() []error { return []error{ErrCorrupt, e.Cause} }

// BusyError says that a lock could not be taken in time, and which process holds it. It
// wraps ErrBusy and the context's error.
type BusyError struct {
	Path   string
	Waited time.Duration
	Holder *Holder // nil if unknown
	Cause  error
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s; gave up after %v: wait for it to end, or ask its owner", e.held(), e.Waited.Round(time.Millisecond))
}

func (e *BusyError) held() string {
	holder := "a process that cannot be seen from here"
	if e.Holder != nil {
		holder = e.Holder.String()
	}
	return fmt.Sprintf("%s is held by %s", e.Path, holder)
}

// Unwrap makes errors.Is find ErrBusy and the context's error.
func (e *BusyError) Unwrap() []error { return []error{ErrBusy, e.Cause} }

// TooManyError says that more devices were requested than exist, or than have room. It
// wraps ErrUnavailable.
type TooManyError struct {
	Requested int
	Total     int // devices of the host
	Free      int // of these, how many the environment has or could get
	Conflicts []Conflict
}

func (e *TooManyError) Error() string {
	if e.Requested > e.Total {
		return fmt.Sprintf("Requested more devices (%d) than total available (%d)", e.Requested, e.Total)
	}
	return fmt.Sprintf("Requested more devices (%d) than currently available (%d)", e.Requested, e.Free)
}

// Unwrap makes errors.Is find ErrUnavailable.
func (e *TooManyError) Unwrap() error { return ErrUnavailable }

// TakenError says that a device has no room left. It wraps ErrUnavailable.
type TakenError struct {
	Index     snapshot.DeviceIndex
	Conflicts []Conflict
}

func (e *TakenError) Error() string { return fmt.Sprintf("Device %d is not available", e.Index) }

// Unwrap makes errors.Is find ErrUnavailable.
func (e *TakenError) Unwrap() error { return ErrUnavailable }

// NoDeviceError says that the host has no device with that index. It wraps
// ErrUnavailable.
type NoDeviceError struct {
	Index snapshot.DeviceIndex
	Total int // devices of the host
}

func (e *NoDeviceError) Error() string {
	return fmt.Sprintf("There is no device %d: this host has %d, see `genv devices`", e.Index, e.Total)
}

// Unwrap makes errors.Is find ErrUnavailable.
func (e *NoDeviceError) Unwrap() error { return ErrUnavailable }
