package text

import (
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// NoAnswer are the words of Late for a deadline of unknown length.
const NoAnswer = "no answer in time"

// Late is err in plain words where it has Go's for a deadline, as errors of net/http, os/exec and pgx do:
// "no answer within 5s", or "no answer in time" where it isn't known within what, which is 0 then. The
// words may also be those of another machine. Any other error stays as it is.
func Late(err error, within time.Duration) error {
	if err == nil {
		return nil
	}
	words := NoAnswer
	if within > 0 {
		words = "no answer within " + FormatDuration(within)
	}
	before := err.Error()
	said := strings.NewReplacer(context.DeadlineExceeded.Error(), words, os.ErrDeadlineExceeded.Error(), words).
		Replace(before)
	if said == before {
		return err
	}
	return Worded(said, err)
}

// Worded is an error with these words, which wraps causes.
func Worded(words string, causes ...error) error { return &worded{words, causes} }

type worded struct {
	words  string
	causes []error
}

func (w *worded) Error() string   { return w.words }
func (w *worded) Unwrap() []error { return w.causes }

// Pattern compiles a regular expression when it is first used: every start of genv would pay for it otherwise.
func Pattern(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
