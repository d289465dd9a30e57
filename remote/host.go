// Package remote runs commands on many hosts: a Host, a Command, the Runner that runs a command on a host, and Each,
// which does something on many hosts at once and keeps their errors apart. It also has the classes of errors, each with
// a next step for the administrator.
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
	// Name is how the administrator names it, how it is listed, and what is looked
	// up in ssh_config. It is unique in a fleet.
	Name string
	// Address is where to connect, if not to Name; empty leaves it to ssh_config and
	// the resolver. Port 0 and User "" likewise.
	Address string
	Port    int
	User    string
	// GenvPath is the genv program on that host; empty means "genv".
	GenvPath string
	// NoSudo runs genv without `sudo -n`, for hosts where User is root or may only see its own processes.
	NoSudo bool
	// OpenSSH reaches the host by running ssh(1), for what the SSH library can't do.
	OpenSSH bool
	// Personal is for a login that isn't the controller's, where that has an account of its own: sudoers has
	// nothing for it on the host, and no advice is to change that.
	Personal bool
	// Labels are chosen by the administrator, for policies.
	Labels map[string]string
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
	// Address is the IP address and port of the connection; behind a jump host,
	// which resolves names itself, the name and port.
	Address string
	// Through is the jump hosts or the ProxyCommand of the connection; empty for none.
	Through string
	// HostKey is the fingerprint of its host key.
	HostKey string
}

// Known says whether enough is known to compare machines.
func (p Peer) Known() bool { return p.Address != "" && p.HostKey != "" }

// Command is a program with its arguments and its stdin. Arguments are quoted, so
// that the remote shell interprets none of them.
type Command struct {
	Args  []string
	Stdin []byte
	// Upload, if set, follows Stdin. It is read once, and need not be in memory.
	Upload io.Reader
	// Timeout is for its run; 0 is that of the Runner.
	Timeout time.Duration
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

// Quote returns a text as one word for a POSIX shell, and for csh and fish if it has no newline or exclamation mark.
func Quote(word string) string {
	if word != "" && strings.IndexFunc(word, unsafe) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// unsafe is anything but letters, digits and the few characters that no shell
// interprets. "~" and "=" are unsafe at the start of a word.
func unsafe(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		strings.ContainsRune("-_./:,@%+", r))
}

// Result is the value of a host, or its error.
type Result[T any] struct {
	Host    Host
	Value   T
	Err     error
	Elapsed time.Duration
}

// Each calls do for every host, at most limit at a time, and returns the results in the order of the hosts. The error
// of one host neither delays nor cancels another host. When ctx ends, the remaining hosts get its cause as their error;
// do must return when its ctx ends.
func Each[T any](ctx context.Context, hosts []Host, limit int, do func(context.Context, Host) (T, error)) []Result[T] {
	results := make([]Result[T], len(hosts))
	var group errgroup.Group // without a context, so that an error cancels nothing
	group.SetLimit(max(limit, 1))
	for i, host := range hosts {
		group.Go(func() error {
			results[i] = one(ctx, host, do)
			return nil
		})
	}
	_ = group.Wait() // each host's error is in its result
	return results
}

func one[T any](ctx context.Context, host Host, do func(context.Context, Host) (T, error)) Result[T] {
	r := Result[T]{Host: host}
	if ctx.Err() != nil {
		r.Err = notBegun(context.Cause(ctx))
		return r
	}
	start := time.Now()
	r.Value, r.Err = do(ctx, host)
	r.Elapsed = time.Since(start)
	return r
}

// notBegun is the error of a host for which nothing was done. A cause with a class keeps it.
func notBegun(cause error) error {
	if _, known := errors.AsType[*Error](cause); known {
		return cause
	}
	return Errorf(Cancelled, "not begun: %w", cause)
}

// Outlasting is a context that ends when it is cancelled, or some time after ctx, with its cause:
// for what was begun before a run ends, and is worth a moment then.
func Outlasting(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
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

// While returns a context for what may be begun only while may returns nil, such as the orders of
// a controller that leads. The sender of a command or a request asks with MayBegin right before,
// after all that it had to wait for: a place among others, a login, its turn on a connection.
func While(ctx context.Context, may func() error) context.Context {
	return context.WithValue(ctx, whileKey{}, may)
}

type whileKey struct{}

// MayBegin returns the error of the function that While was given; nil without one. Nothing may be sent after an error.
func MayBegin(ctx context.Context) error {
	may, _ := ctx.Value(whileKey{}).(func() error)
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
