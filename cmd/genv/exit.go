package main

import (
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/remote"
)

// The exit codes, in one place. README.md documents them.
const (
	exitOK         = 0 // all hosts answered
	exitFailed     = 1 // wrong usage or configuration: nothing was done
	exitSomeFailed = 3 // some hosts failed
	exitNoneLeft   = 4 // no host answered
	exitHeld       = 5 // safety limits held actions back; the rest was done
	exitUnrecorded = 6 // the record could not be kept
	// exitWork says with --exit-code that a dry run found something to do. It
	// isn't 2, since that is the exit code of a Go program that crashed.
	exitWork = 10
)

// exitError carries an exit code; err is nil when all has been said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage is a wrong word of the user's; nothing has been done yet.
func usage(format string, args ...any) error {
	return &exitError{code: exitFailed, err: fmt.Errorf(format, args...)}
}

// exitCode decides.
func exitCode(err error) int {
	var exit *exitError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return exit.code
	default:
		return exitFailed
	}
}

// fleetExit is the exit code of work on several hosts. One that was stopped
// before it could answer, by -e or Ctrl-C, is not one that did not answer.
func fleetExit(failures []failure, total int, quiet bool) error {
	silent := 0
	for _, f := range failures {
		if f.Class != remote.Cancelled {
			silent++
		}
	}
	switch {
	case len(failures) == 0:
		return nil
	case silent == total:
		return &exitError{code: exitNoneLeft}
	case quiet:
		return nil
	default:
		return &exitError{code: exitSomeFailed}
	}
}
