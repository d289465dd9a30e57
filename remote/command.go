package remote

import (
	"context"
	"strings"
)

// Command is a program with its arguments and what it reads on stdin. Arguments
// are quoted for the remote shell; none of them is ever interpreted by it.
type Command struct {
	Args  []string
	Stdin []byte
}

// Output is what a command that exited with 0 wrote.
type Output struct{ Stdout, Stderr []byte }

// Runner runs a command on a host and waits for its end or that of ctx. Its
// error is an *Error, whose Class says what to do about it; the Output holds
// what had arrived by then.
type Runner interface {
	Run(ctx context.Context, host Host, command Command) (Output, error)
}

// ShellLine is the command as one line for the remote login shell, each
// argument in single quotes unless it consists of safe characters alone.
func (c Command) ShellLine() string {
	quoted := make([]string, len(c.Args))
	for i, arg := range c.Args {
		quoted[i] = Quote(arg)
	}
	return strings.Join(quoted, " ")
}

// Quote makes one word of any text for a POSIX shell (and for csh and fish, as
// long as it has no newline or exclamation mark).
func Quote(word string) string {
	if word != "" && strings.IndexFunc(word, unsafe) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// unsafe is anything but letters, digits and the few marks that no shell
// interprets wherever they stand. A "~" or "=" may mean something at the start.
func unsafe(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:,@%+", r))
}
