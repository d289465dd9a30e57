package state

import (
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrNoDevices says that there is no devices.json yet: call nvidia-smi, without any
	// lock, and pass its devices to store.Store.RegisterDevices.
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
