package remote

import (
	"context"
	"io"
	"strings"
)

// Command is a program with its arguments and its stdin. Arguments are quoted, so
// that the remote shell interprets none of them.
type Command struct {
	Args  []string
	Stdin []byte
	// Upload, if set, follows Stdin. It is read once, and need not be in memory.
	Upload io.Reader
}

// Output is what a command wrote.
type Output struct{ Stdout, Stderr []byte }

// Runner runs a command on a host and waits until it or ctx ends. Its error is an
// *Error with a Class; the Output is what was received until then.
type Runner interface {
	Run(ctx context.Context, host Host, command Command) (Output, error)
}

// ShellLine is the command as one line for the remote login shell. Arguments with
// other than safe characters are in single quotes.
func (c Command) ShellLine() string {
	quoted := make([]string, len(c.Args))
	for i, arg := range c.Args {
		quoted[i] = Quote(arg)
	}
	return strings.Join(quoted, " ")
}

// Quote returns a text as one word for a POSIX shell, and for csh and fish if it
// has no newline or exclamation mark.
func Quote(word string) string {
	if word != "" && strings.IndexFunc(word, unsafe) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// unsafe is anything but letters, digits and the few characters that no shell
// interprets. "~" and "=" are unsafe at the start of a word.
func unsafe(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:,@%+", r))
}
