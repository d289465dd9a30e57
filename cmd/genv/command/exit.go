package command

import (
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/remote"
)

// The exit codes, in one place. README.md documents them.
const (
	ExitOK         = 0 // all hosts answered
	ExitFailed     = 1 // wrong usage or configuration: nothing was done
	ExitSomeFailed = 3 // some hosts failed
	ExitNoneLeft   = 4 // no host answered
	ExitHeld       = 5 // safety limits held actions back; the rest was done
	ExitUnrecorded = 6 // the record could not be kept
	ExitReplaced   = 7 // another controller took the place of this one
	// ExitWork says with --exit-code that a dry run found something to do. It
	// isn't 2, since that is the exit code of a Go program that crashed.
	ExitWork = 10
)

// ExitError carries an exit code; err is nil when all has been said already.
type ExitError struct {
	Code int
	Err  error
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// UsageError is an error in what the user wrote; nothing has been done yet.
func UsageError(format string, args ...any) error {
	return &ExitError{Code: ExitFailed, Err: fmt.Errorf(format, args...)}
}

// ExitCode decides.
func ExitCode(err error) int {
	var exit *ExitError
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &exit):
		return exit.Code
	default:
		return ExitFailed
	}
}

// FleetExit is the exit code of work on several hosts, of which some answered. One
// that was stopped before it could answer, by -e or Ctrl-C, is not one that did not
// answer.
func FleetExit(failures []remote.Failure, answered int) error {
	silent := 0
	for _, f := range failures {
		if f.Class != remote.Cancelled {
			silent++
		}
	}
	switch {
	case len(failures) == 0:
		return nil
	case answered == 0 && silent == len(failures):
		return &ExitError{Code: ExitNoneLeft}
	default:
		return &ExitError{Code: ExitSomeFailed}
	}
}
