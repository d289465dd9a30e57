package inventory

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// ErrUsage is in the chain of every error of this package: what the
// administrator wrote must change, and nothing was done. The error's text is
// one line that names the flag, or the file, line and column, and what to write
// instead.
var ErrUsage = errors.New("wrong use")

// usageError is an error that is ErrUsage without saying so in its text.
type usageError struct{ err error }

// Error is one line whatever the names of files and hosts hold.
func (e usageError) Error() string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, e.err.Error())
}

func (e usageError) Unwrap() []error { return []error{ErrUsage, e.err} }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}
