package state

import (
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrNoDevices says that there is no devices.json yet: call nvidia-smi, without any
	// lock, and pass its devices to disk.Store.RegisterDevices.
	ErrNoDevices = errors.New("the GPUs of this host are not registered yet")
	// ErrUnavailable is wrapped if requested devices have no room or don't exist: see UnavailableError.
	ErrUnavailable = errors.New("not available")
	// ErrCap is wrapped if a cap of the policy doesn't allow what is asked for.
	ErrCap = errors.New("beyond a cap of the policy")
	// ErrRequest is wrapped if a request is invalid in any state.
	ErrRequest = errors.New("not a valid request")
	// ErrNotOwner says that the environment belongs to another user.
	ErrNotOwner = errors.New("not your environment")
	// ErrNoEnvironment says that no such environment is registered.
	ErrNoEnvironment = errors.New("no such environment")
	// ErrActive says that a process is already in another environment.
	ErrActive = errors.New("already in an active environment")
)

// UnavailableError says which of the requested devices are not available. It wraps ErrUnavailable.
type UnavailableError struct {
	Reason string `json:"reason"`
	// TooFew says that more devices would help: more were requested than exist or have room, or one that doesn't exist.
	TooFew bool `json:"too_few,omitempty"`
	// Conflicts are the attachments that prevent the request; empty if the host doesn't have as many devices.
	Conflicts []Conflict `json:"conflicts,omitempty"`
}

func (e *UnavailableError) Error() string { return e.Reason }

// Unwrap makes errors.Is find ErrUnavailable.
func (e *UnavailableError) Unwrap() error { return ErrUnavailable }

// NoDevice is the UnavailableError for an index at which the host has no device.
func (f *Files) NoDevice(index snapshot.DeviceIndex) error {
	return &UnavailableError{
		Reason: fmt.Sprintf("There is no GPU %d: this host has %d, see `genv gpus`", index, len(f.Devices)),
		TooFew: true,
	}
}
