// Package config reads the OpenSSH configuration of a host: the fields of
// ssh_config that genv uses, with Include, tokens, `~` and ${ENV}.
//
// Plain files are read by kevinburke/ssh_config: one process per host costs milliseconds of CPU time. Which lines it
// would read in another way than ssh, or not at all (Match), is known: a file with one of them is left to `ssh -G`,
// which has the last word where ssh is installed. Where it is not, such a line is an *Error that names the file and the
// line, never silently a default.
//
//	resolver := config.New(config.ResolverOptions{})
//	hostConfig, err := resolver.Resolve(ctx, config.Lookup{Host: "gpu-07"})
//
// The package opens no connection and checks no key. It ignores forwardings, environment and terminal options, which
// change nothing for genv. ControlPath is only read for a host that is reached by running ssh(1). Algorithm lists are
// those of ssh_config, or else the defaults of OpenSSH, as far as the SSH library has them.
package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// ResolverOptions say which files and program to use; the zero value is what ssh(1) does by default.
type ResolverOptions struct {
	// File is ssh's -F: a file instead of the user's and the system's; "none" for no file.
	File string
	// SSH is the ssh program; empty for the one in PATH, "none" for none.
	SSH string
	// User and Home replace the user's name and home folder; SystemFile replaces /etc/ssh/ssh_config. They are for
	// tests, with SSH set to "none", since ssh can't use others.
	User, Home, SystemFile string
	// Timeout is for a run of ssh; 0 is 10 s. Waiting for its turn takes none of it.
	Timeout time.Duration
}

// Resolver answers queries and caches the answers until a configuration file changes. It is safe for concurrent use.
type Resolver struct {
	options ResolverOptions
	who     identity
	ssh     string        // empty: not installed
	running chan struct{} // bounds the processes
	files   *files

	mu      sync.Mutex
	answers map[Lookup]cached
}

type cached struct {
	settings HostConfig
	err      error
	stamp    string // of the files it came from
}

// New finds ssh and the user; it reads no configuration yet.
func New(o ResolverOptions) *Resolver {
	o.Timeout = cmp.Or(o.Timeout, 10*time.Second)
	r := &Resolver{options: o, running: make(chan struct{}, max(2, runtime.NumCPU())), answers: map[Lookup]cached{}}
	r.who = whoAmI(o)
	switch o.SSH {
	case "none":
	case "":
		r.ssh, _ = exec.LookPath("ssh") // without ssh, only the local reader is used
	default:
		r.ssh = o.SSH
	}
	r.files = newFiles(o, r.who)
	return r
}

// Resolve returns what OpenSSH would use for the host. Its error is an *Error, or the context's cause.
func (r *Resolver) Resolve(ctx context.Context, q Lookup) (HostConfig, error) {
	if err := Valid(q); err != nil {
		return HostConfig{}, err
	}
	stamp := r.files.stamp()
	r.mu.Lock()
	known, ok := r.answers[q]
	r.mu.Unlock()
	if ok && known.stamp == stamp {
		return known.settings, known.err
	}
	fresh := cached{stamp: stamp}
	fresh.settings, fresh.err = r.resolve(ctx, q)
	if ctx.Err() != nil || errors.Is(fresh.err, context.DeadlineExceeded) {
		return fresh.settings, fresh.err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[q] = fresh
	return fresh.settings, fresh.err
}

func (r *Resolver) resolve(ctx context.Context, q Lookup) (HostConfig, error) {
	values, lines, err := r.read(ctx, q)
	if err != nil {
		return HostConfig{}, err
	}
	s, err := values.settings(q, r.who)
	if err != nil {
		return s, located(err, lines)
	}
	s.FixedHostKeyOrder = fixedHostKeyOrder(values.first("hostkeyalgorithms"), lines != nil)
	return s, validTarget(s, r.who)
}

// read uses the local reader if that understands every line, since one process per host makes the first cycle slow;
// otherwise ssh. Without ssh the error is that of the reader. The lines are those that the local reader selected.
func (r *Resolver) read(ctx context.Context, q Lookup) (raw, []line, error) {
	values, lines, err := r.files.evaluate(q)
	if err == nil || r.ssh == "" {
		return values, lines, err
	}
	values, err = r.askOpenSSH(ctx, q)
	return values, nil, err
}

// located adds to an error the place of the line that is its cause.
func located(err error, lines []line) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.keyword == "" {
		return err
	}
	for _, l := range lines {
		if l.keyword == e.keyword {
			return &Error{File: l.place.File, Line: l.place.Line, Problem: e.Problem, keyword: e.keyword}
		}
	}
	return err
}

// hostName matches host names and addresses, and nothing that a shell or the command line of ssh could interpret.
var hostName = text.Pattern(`^[\pL\pN_.:\[\]][\pL\pN_.:%\[\]-]*$`)

// userName excludes what a shell interprets, since it can be in a ProxyCommand.
var userName = text.Pattern(`^[\pL\pN_.@+\\][\pL\pN_.@+\\ -]*\$?$`)

// Valid refuses names that could be interpreted as an option or by a shell.
func Valid(q Lookup) error {
	for _, name := range []string{q.Host, q.HostName} {
		if name != "" && !hostName().MatchString(name) {
			return &Error{Problem: fmt.Sprintf("%q is not a host name", name)}
		}
	}
	if q.Host == "" {
		return &Error{Problem: "the host's name is empty"}
	}
	if q.User != "" {
		if err := text.CheckUsername(q.User); err != nil {
			return &Error{Problem: err.Error()}
		}
		if strings.ContainsAny(q.User, "'`\";&<>|(){}") { // as ssh
			return &Error{Problem: fmt.Sprintf("the user name %q has a character that ssh refuses", q.User)}
		}
	}
	if q.Port < 0 || q.Port > 65535 {
		return &Error{Problem: fmt.Sprintf("%d is not a port", q.Port)}
	}
	return nil
}

func validTarget(s HostConfig, who identity) error {
	if s.User == "" {
		return who.noUser()
	}
	if !hostName().MatchString(s.HostName) {
		return &Error{Problem: fmt.Sprintf("HostName %q in ssh_config is not a host name", s.HostName)}
	}
	if err := text.CheckUsername(s.User); err != nil {
		return &Error{Problem: "User in ssh_config: " + err.Error()}
	}
	if s.ProxyCommand != "" && !userName().MatchString(s.User) {
		return &Error{Problem: fmt.Sprintf("the user name %q has characters that a shell interprets, and "+
			"ProxyCommand is run by a shell; use ProxyJump", s.User)}
	}
	return nil
}
