package remote

import (
	"errors"
	"fmt"
)

// Class sorts errors by what the administrator can do about them. The texts
// appear in JSON and in the audit log.
type Class string

const (
	Unreachable    Class = "unreachable"      // no connection: name, network, or nobody listens
	HostKey        Class = "host-key"         // the host's key is unknown
	HostKeyChanged Class = "host-key-changed" // the host's key is another one, or revoked
	Auth           Class = "auth"             // no key was accepted
	Sudo           Class = "sudo"             // sudo wants a password, or there is no sudo
	SudoRefused    Class = "sudo-refused"     // no line of sudoers covers the command
	GenvMissing    Class = "genv-missing"     // there is no genv on the host
	Version        Class = "version"          // genv there speaks another language
	InvalidOutput  Class = "invalid-output"   // what came is not what was asked for
	Timeout        Class = "timeout"          // connected, but no answer in time
	OutcomeUnknown Class = "outcome-unknown"  // cut off while it ran: it may have been done
	CommandFailed  Class = "command-failed"   // the command itself said no
	Configuration  Class = "configuration"    // ssh_config or a key file cannot be honoured
	Cancelled      Class = "cancelled"        // we stopped before it was done
)

// Error is a failure on a host.
type Error struct {
	Class  Class
	Err    error  // the cause, never nil
	Stderr string // what the command wrote there, whole up to the cap
	// Next is the next step, where more is known than the class says; empty
	// leaves it to the class.
	Next string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ErrBusy is wrapped when a server dropped a connection before the handshake, as
// sshd does at random while too many logins are under way (MaxStartups). Another
// attempt after a short pause usually succeeds.
var ErrBusy = errors.New("the server is busy")

// ErrNoProbe is wrapped when a host can't be probed, since the way to it isn't a
// plain TCP connection.
var ErrNoProbe = errors.New("the host can't be probed")

// Outdated reports whether the cause of an error has changed since, such as
// known_hosts for a host key that was refused: then another attempt is worthwhile
// at once.
func Outdated(err error) bool {
	var e interface{ Outdated() bool }
	return errors.As(err, &e) && e.Outdated()
}

// Errorf makes an Error of a class; %w keeps causes.
func Errorf(class Class, format string, args ...any) *Error {
	return &Error{Class: class, Err: fmt.Errorf(format, args...)}
}

// ClassOf is the class of the first *Error in err's chain; an error that was
// never classified counts as CommandFailed.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return CommandFailed
}

var nextSteps = map[Class]string{
	Unreachable:    "check that the host is up and that `ssh HOST true` connects",
	HostKey:        "check the key's fingerprint with the host's owner, then add it: ssh-keyscan HOST >> ~/.ssh/known_hosts",
	HostKeyChanged: "somebody may be in between: check the key with the host's owner before you do anything, then remove the old one: ssh-keygen -R HOST",
	Auth:           "check the user name and that a key of yours is accepted: ssh -v HOST true (is the agent running? ssh-add -l)",
	Sudo:           sudoStep(Sudo, "USER", DefaultGenv),
	SudoRefused:    sudoStep(SudoRefused, "USER", DefaultGenv),
	GenvMissing:    "install genv on the host where sudo finds it (/usr/local/bin), or set `genv:` for it in hosts.yaml",
	Version:        "install the same version of genv on the host and on this machine",
	InvalidOutput:  "run the command by hand and look at what it prints: ssh HOST sudo -n genv usage snapshot",
	Timeout:        "the host may be overloaded or its driver hung; raise --timeout or --command-timeout if it is only slow",
	OutcomeUnknown: "nothing is sent again; the next cycle looks at what is there then",
	CommandFailed:  "read the host's own words above; run the command there by hand to see more",
	Configuration:  "mend the file and line that is named, or choose another with --ssh-config",
	Cancelled:      "run it again",
}

// NextStepOf is what to do about an error: its own next step, or its class's.
func NextStepOf(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Next != "" {
		return e.Next
	}
	return ClassOf(err).NextStep()
}

// NextStep is one line that tells the administrator what to do about a class.
func (c Class) NextStep() string { return nextSteps[c] }
