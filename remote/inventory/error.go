package inventory

import (
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// ErrUsage is in the chain of every error of this package: the input must be
// changed. The error's text is one line that names the flag, or the file, line
// and column, and what to write instead.
var ErrUsage = errors.New("usage error")

// usageError wraps ErrUsage without repeating its text.
type usageError struct{ err error }

// Error is one line, whatever characters the names of files and hosts contain.
func (e usageError) Error() string { return text.Printable(e.err.Error()) }

func (e usageError) Unwrap() []error { return []error{ErrUsage, e.err} }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}
