package disk

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// Errors that callers distinguish with errors.Is; see also folder.ErrUnsafe and state.ErrNoDevices.
var (
	// ErrCorrupt is wrapped if a state file can't be decoded: it stays, and only a reset replaces it.
	ErrCorrupt = errors.New("state is corrupt")
	// ErrLost is wrapped if a state file is missing although root saw it in this boot.
	ErrLost = errors.New("state is lost")
	// ErrTampered is wrapped if a user has mounted a file system over the folder, or in it.
	ErrTampered = folder.ErrTampered
	// errReplaced says that the folder is another one than the one that was root's. It was mended.
	errReplaced = errors.New("tampering")
	// ErrPrivate is wrapped if the folder is one that only this login or service sees.
	ErrPrivate = errors.New("the state folder is not that of this machine")
	// ErrOwned is wrapped if the state is root's and this process is not: ask root's service.
	ErrOwned = errors.New("the state of this host belongs to root")
	// ErrBusy is wrapped if a lock could not be taken in time: see BusyError.
	ErrBusy = errors.New("state is locked")
)

// BusyError says that a lock wasn't free in time, and who holds it. It wraps ErrBusy and the context's error.
type BusyError struct {
	Path   string
	Waited time.Duration
	Holder *proc.LockHolder // nil if unknown
	Cause  error
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s; gave up after %v: wait for it to end, or ask its owner", e.held(),
		e.Waited.Round(time.Millisecond))
}

func (e *BusyError) held() string { return e.Path + " is held by " + e.Holder.String() }

// Unwrap makes errors.Is find ErrBusy and the context's error.
func (e *BusyError) Unwrap() []error { return []error{ErrBusy, e.Cause} }
