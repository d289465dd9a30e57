package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// Class classifies errors by what the administrator can do about them. The texts appear in JSON and in the audit log.
type Class string

const (
	Unreachable    Class = "unreachable"      // no such name, no route, refused, or no answer in time
	HostKey        Class = "host-key"         // the host's key is unknown
	HostKeyChanged Class = "host-key-changed" // the host's key has changed, or is revoked
	Auth           Class = "auth"             // no key was accepted
	OpenSSH        Class = "openssh"          // ssh(1), which was run for the host, failed
	Sudo           Class = "sudo"             // sudo requires a password, or is missing
	SudoRefused    Class = "sudo-refused"     // no line in sudoers covers genv's commands
	GenvMissing    Class = "genv-missing"     // genv is not where sudo looks for it
	Version        Class = "version"          // genv's version is incompatible
	InvalidOutput  Class = "invalid-output"   // the output is not in the expected format
	Timeout        Class = "timeout"          // connected, but no answer in time
	OutcomeUnknown Class = "outcome-unknown"  // cut off while an order ran: it is never sent again
	CommandFailed  Class = "command-failed"   // the command itself failed
	Configuration  Class = "configuration"    // ssh_config or a key file can't be used
	InstallRefused Class = "install-refused"  // genv can't be installed there; nothing was changed
	Replaced       Class = "replaced"         // another controller acts on the host: nothing was done
	Cancelled      Class = "cancelled"        // genv was stopped before
)

// Error is a failure on a host.
type Error struct {
	Class  Class
	Err    error  // the cause, never nil
	Stderr string // of the command, up to a maximum size
	Next   string // the next step if it differs from that of the class, else empty
}

// Error has no words of Go for a deadline: people read it.
func (e *Error) Error() string { return text.Late(e.Err, 0).Error() }
func (e *Error) Unwrap() error { return e.Err }

// Kind is the class, for packages that can't know it (see enforce.KnownHost).
func (e *Error) Kind() string { return string(e.Class) }

// These errors are wrapped in those of hosts.
var (
	// ErrBusy: a server dropped a connection before the handshake, as sshd does at random while too many logins are
	// under way (MaxStartups). Another attempt after a short pause usually succeeds.
	ErrBusy = errors.New("the server is busy")
	// ErrSaidWhy: a host refused a login and said why, as while it is going down: another attempt is worthwhile soon.
	ErrSaidWhy = errors.New("the host gave that reason")
	ErrNoProbe = errors.New("the host can't be probed") // the way to it isn't a plain TCP connection
	// ErrNoNames: the name service of this machine fails. The host may be up.
	ErrNoNames = errors.New("the name service doesn't answer as it should")
	// ErrLate is context.DeadlineExceeded in plain words.
	ErrLate = text.Worded(text.NoAnswer, context.DeadlineExceeded)
)

// Outdated reports whether the cause of an error has changed, such as known_hosts: it is worth another attempt at once.
func Outdated(err error) bool {
	var e interface{ Outdated() bool }
	return errors.As(err, &e) && e.Outdated()
}

// Errorf makes an Error of a class; %w keeps causes.
func Errorf(class Class, format string, args ...any) *Error {
	return &Error{Class: class, Err: fmt.Errorf(format, args...)}
}

// WithNext sets the next step.
func (e *Error) WithNext(next string) *Error {
	e.Next = next
	return e
}

// ClassOf is the class of the first *Error in err's chain; CommandFailed if there is none.
func ClassOf(err error) Class {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Class
	}
	return CommandFailed
}

var nextSteps = sync.OnceValue(func() map[Class]string {
	return map[Class]string{
		Unreachable: "check that the host is up and that `ssh HOST true` connects",
		HostKey: "check the fingerprint with the host's owner, then add the key to known_hosts, for example " +
			"with ssh-keyscan",
		HostKeyChanged: ChangedKeyStep("remove the old one: ssh-keygen -R HOST -f FILE"),
		Auth: "check the user name and that a key of yours is accepted: ssh -v HOST true (is the agent " +
			"running? ssh-add -l)",
		OpenSSH: "check that `ssh -o BatchMode=yes HOST true` connects without a question: its last words are " +
			"in the error",
		Sudo:        SudoStep(Sudo, "USER", DefaultGenv),
		SudoRefused: SudoStep(SudoRefused, "USER", DefaultGenv),
		GenvMissing: "install genv on the host where sudo finds it (/usr/local/bin): `genv remote install -H " +
			"HOST`; or set `genv:` for it in hosts.yaml",
		Version:       "install the same version of genv on the host and on this machine",
		InvalidOutput: "run the command by hand and look at what it prints: ssh HOST sudo -n genv usage snapshot",
		Timeout: "the host may be overloaded or its driver hung; raise --timeout or --command-timeout if it " +
			"is only slow",
		OutcomeUnknown: "nothing is sent again; the next cycle judges the new state",
		CommandFailed:  "read the output of the host above; run the command there by hand to see more",
		Configuration:  "correct the named file and line, or use another file with --ssh-config",
		InstallRefused: "correct what is said about the host, then install again",
		Replaced: "only one controller may act on a host: end the other one; if the host still refuses, since " +
			"that one was killed or elected, start this one once with --take-over",
		Cancelled: "run it again",
	}
})

// ChangedKeyStep is the next step for a host with a changed key, with what to do once it is checked.
func ChangedKeyStep(then string) string {
	return "another machine may be intercepting the connection: check the key with the host's owner before you do " +
		"anything, then " + then
}

// NextStepOf is the next step for an error: its own, or that of its class.
func NextStepOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok && e.Next != "" {
		return e.Next
	}
	return ClassOf(err).NextStep()
}

// NextStep is what the administrator can do about errors of a class, in one line.
func (c Class) NextStep() string { return nextSteps()[c] }

// Failure is a host that failed, as JSON shows it.
type Failure struct {
	Host     string `json:"host"` // as the administrator wrote it
	Class    Class  `json:"class"`
	Error    string `json:"error"`     // with the host's own words
	NextStep string `json:"next_step"` // what to do about it
}

// FailureOf describes the error of a host.
func FailureOf(host string, err error) Failure {
	said := strings.TrimPrefix(text.Late(err, 0).Error(), host+": ")
	return Failure{Host: host, Class: ClassOf(err), Error: said, NextStep: NextStepOf(err)}
}

// Cause is why one or more hosts failed.
type Cause struct {
	Class     Class
	Error     string   // the text of the hosts' errors, shortened, with "…" for what differs between them
	Hosts     []string // in the order of the failures
	NextSteps []string // those of the hosts, each once
}

// Causes groups failures that differ only in what is the host's own (ownPieces), the largest class and cause first.
func Causes(failures []Failure) []Cause {
	type group struct {
		Cause
		rest   string     // of the text, between the pieces
		pieces [][]string // of each host
	}
	groups := make(map[string]*group)
	var order []*group
	perClass := make(map[Class]int)
	for _, f := range failures {
		rest, pieces := varying(f.Error, f.Host)
		key := string(f.Class) + "\x00" + rest
		g := groups[key]
		if g == nil {
			g = &group{Cause: Cause{Class: f.Class, Error: f.Error}, rest: rest}
			groups[key], order = g, append(order, g)
		}
		perClass[f.Class]++
		g.Hosts, g.pieces = append(g.Hosts, f.Host), append(g.pieces, pieces)
		if !slices.Contains(g.NextSteps, f.NextStep) {
			g.NextSteps = append(g.NextSteps, f.NextStep)
		}
	}
	causes := make([]Cause, len(order))
	for i, g := range order {
		if len(g.Hosts) > 1 {
			g.Error = common(g.rest, g.pieces)
		}
		if where, why, found := strings.Cut(g.Error, ": dial tcp "); found &&
			strings.HasPrefix(where, "no connection to ") {
			_, why, _ = strings.Cut(why, ": ") // it says the same address again
			g.Error = where + ": " + strings.TrimPrefix(why, "connect: ")
		}
		causes[i] = g.Cause
	}
	slices.SortStableFunc(causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(perClass[b.Class], perClass[a.Class]), cmp.Compare(a.Class, b.Class),
			cmp.Compare(len(b.Hosts), len(a.Hosts)))
	})
	return causes
}

const (
	mark        = "\x00" // replaces a part of an error that may differ between hosts
	maxCompared = 2048   // bytes of an error that decide about its cause
)

// ownPieces matches what differs from host to host. It isn't the fingerprint of a key, since people have to check that.
var ownPieces = text.Pattern(strings.Join([]string{
	`\b\d{1,3}(?:\.\d{1,3}){3}\b`,
	`\[[0-9a-fA-F:.]+(?:%\w+)?\]`,
	`\b[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){2,7}`,
	`\b[\w.-]+:\d{1,5}\b`,
	`:\d{1,5}\b`,
	`(?i:\b(?:port|pid|process) \d+)`,
	`\b\d+(?:\.\d+)?(?:ns|µs|us|ms|s|m|h|d)(?:\d+(?:\.\d+)?(?:ms|s|m|h))*\b`,
}, "|"))

// varying takes out of an error what is the host's own.
func varying(text, host string) (rest string, pieces []string) {
	text = strings.ReplaceAll(text, mark, "?")
	tail := ""
	if len(text) > maxCompared {
		text, tail = text[:maxCompared], text[maxCompared:]
	}
	var b strings.Builder
	take := func(text string, own [][]int) {
		at := 0
		for _, m := range own {
			b.WriteString(text[at:m[0]] + mark)
			pieces = append(pieces, text[m[0]:m[1]])
			at = m[1]
		}
		b.WriteString(text[at:])
	}
	at := 0
	for _, m := range word().FindAllStringIndex(text, -1) {
		if names(text[m[0]:m[1]], host) {
			take(text[at:m[0]], ownPieces().FindAllStringIndex(text[at:m[0]], -1))
			take(text[m[0]:m[1]], [][]int{{0, m[1] - m[0]}})
			at = m[1]
		}
	}
	take(text[at:], ownPieces().FindAllStringIndex(text[at:], -1))
	return b.String() + tail, pieces
}

var word = text.Pattern(`[A-Za-z0-9_.-]+`)

// names says whether a word is the name of a host: with its domain, or without.
func names(word, host string) bool {
	short, _, _ := strings.Cut(host, ".")
	first, _, _ := strings.Cut(word, ".")
	return short != "" && strings.EqualFold(first, short)
}

// common is the text of a cause: a piece is kept if all hosts have the same.
func common(rest string, pieces [][]string) string {
	for i, piece := range pieces[0] {
		if slices.ContainsFunc(pieces, func(other []string) bool { return other[i] != piece }) {
			piece = "…"
		}
		rest = strings.Replace(rest, mark, piece, 1)
	}
	return withoutPlace(rest)
}

// withoutPlace leaves out where there is no connection to, if that differs: the names of the hosts are shown anyway.
func withoutPlace(failure string) string {
	at := strings.LastIndex(failure, "…")
	if at < 0 || !strings.HasPrefix(failure, "no connection to ") {
		return failure
	}
	_, why, found := strings.Cut(failure[at:], ": ")
	if !found || why == "" {
		return failure
	}
	return text.OneLine(strings.TrimPrefix(why, "connect: "))
}
