// Package remote runs commands on many hosts: a Host, a Command, the Runner that runs it, and Each, which does
// something on many hosts at once. It also has the classes of errors, each with a next step for the administrator.
//
//	results := remote.Each(ctx, hosts, 32, func(ctx context.Context, h remote.Host) (remote.Output, error) {
//		return runner.Run(ctx, h, h.Genv("usage", "snapshot"))
//	})
//
// The package knows nothing about GPUs or rules, and opens no connection: remote/sshclient is the Runner over SSH.
package remote

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Host is a machine that commands are run on.
type Host struct {
	Name    string // as the administrator names it, unique in a fleet; looked up in ssh_config
	Address string // where to connect, if not to Name; empty leaves it to ssh_config, as Port 0 and User "" do
	Port    int
	User    string

	GenvPath string // the genv program on that host; empty means "genv"
	NoSudo   bool   // without `sudo -n`, for hosts where User is root or may only see its own processes
	OpenSSH  bool   // by running ssh(1), for what the SSH library can't do
	// Personal is a login other than the controller's account: sudoers has nothing for it, and no advice changes that.
	Personal bool
	Labels   map[string]string // chosen by the administrator, for policies
}

// Genv is the command that runs genv on the host with the given arguments.
func (h Host) Genv(args ...string) Command {
	if h.NoSudo {
		return Command{Args: append([]string{h.program()}, args...)}
	}
	return Command{Args: append([]string{"sudo", "-n", h.program()}, args...)}
}

func (h Host) program() string { return cmp.Or(h.GenvPath, "genv") }

// Peer identifies the machine at the other end of a connection. Two hosts with the same Peer are the same machine.
type Peer struct {
	Address string // IP address and port of the connection; behind a jump host, name and port
	Through string // the jump hosts or the ProxyCommand of the connection; empty for none
	HostKey string // the fingerprint
}

// Known says whether enough is known to compare machines.
func (p Peer) Known() bool { return p.Address != "" && p.HostKey != "" }

// Command is a program with its arguments, which the remote shell doesn't interpret, and its stdin.
type Command struct {
	Args    []string
	Stdin   []byte
	Upload  io.Reader     // if set, follows Stdin; it is read once, and need not be in memory
	Timeout time.Duration // of its run; 0 is that of the Runner
}

// Output is what a command wrote.
type Output struct{ Stdout, Stderr []byte }

// Runner runs a command on a host until it or ctx ends, and returns what was received. Its error is an *Error.
type Runner interface {
	Run(ctx context.Context, host Host, command Command) (Output, error)
}

// ShellLine is the command as one line for the remote login shell.
func (c Command) ShellLine() string {
	quoted := make([]string, len(c.Args))
	for i, arg := range c.Args {
		quoted[i] = Quote(arg)
	}
	return strings.Join(quoted, " ")
}

// Quote returns a text as one word for a POSIX shell, and for csh and fish if it has no newline or exclamation mark.
func Quote(word string) string {
	if word != "" && strings.IndexFunc(word, unsafe) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// unsafe is anything but letters, digits and the few characters that no shell interprets: some interpret "~" and "=".
func unsafe(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		strings.ContainsRune("-_./:,@%+", r))
}

// Result is the value of a host, or its error.
type Result[T any] struct {
	Host  Host
	Value T
	Err   error
}

// Each calls do for every host, at most limit at a time; the results are in the order of the hosts. One host's error
// neither delays nor cancels another. When ctx ends, do must return, and the other hosts get its cause.
func Each[T any](ctx context.Context, hosts []Host, limit int, do func(context.Context, Host) (T, error)) []Result[T] {
	results := make([]Result[T], len(hosts))
	var group errgroup.Group // without a context, so that an error cancels nothing
	group.SetLimit(max(limit, 1))
	for i, host := range hosts {
		group.Go(func() error {
			r := &results[i]
			if r.Host = host; ctx.Err() != nil {
				r.Err = notBegun(context.Cause(ctx))
				return nil
			}
			r.Value, r.Err = do(ctx, host)
			return nil
		})
	}
	_ = group.Wait() // each host's error is in its result
	return results
}

// notBegun is the error of a host for which nothing was done. A cause with a class keeps it.
func notBegun(cause error) error {
	if _, known := errors.AsType[*Error](cause); known {
		return cause
	}
	return Errorf(Cancelled, "not begun: %w", cause)
}

// WithGracePeriod is a context that ends when it is cancelled, or some time after ctx, with its cause.
func WithGracePeriod(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-longer.Done():
		case <-time.After(by):
			cancel(context.Cause(ctx))
		}
	})
	return longer, func() { stop(); cancel(context.Canceled) }
}

// While returns a context for what may be begun only while may returns nil, such as the orders of a leader. Whoever
// sends a command or a request asks with MayBegin right before, after all waits.
func While(ctx context.Context, may func() error) context.Context {
	return context.WithValue(ctx, contextKey{}, may)
}

type contextKey struct{}

// MayBegin returns the error of the function that While was given; nil without one. Nothing may be sent after an error.
func MayBegin(ctx context.Context) error {
	may, _ := ctx.Value(contextKey{}).(func() error)
	if may == nil {
		return nil
	}
	return may()
}

// Sleep waits; false if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
