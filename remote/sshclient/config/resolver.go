// Package config reads a host's OpenSSH configuration: the fields of ssh_config that genv uses, with Include, tokens,
// `~` and ${ENV}.
//
// kevinburke/ssh_config reads plain files: a process per host costs milliseconds of CPU time. Files with a line that it
// reads differently from ssh, or can't (Match), are left to `ssh -G`. Without ssh, such a line is an *Error, never
// silently a default.
//
//	resolver := config.New(config.ResolverOptions{})
//	hostConfig, err := resolver.Resolve(ctx, config.Lookup{Host: "gpu-07"})
//
// It opens no connection, checks no key, and ignores forwarding, environment and terminals. Algorithms are ssh_config's
// or OpenSSH's, as far as the SSH library has them.
package config

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// ResolverOptions select files and program. The zero value is like ssh(1).
type ResolverOptions struct {
	File string // as ssh -F: replaces the user's and the system's; "none" for none
	SSH  string // the program; empty: ssh in PATH; "none": none
	// User, Home and SystemFile replace the user's and /etc/ssh/ssh_config, for tests without ssh.
	User, Home, SystemFile string
	Timeout                time.Duration // of an ssh run, without queueing; 0: 10 s
}

// Resolver caches hosts' settings until a file changes. It is safe for concurrent use.
type Resolver struct {
	options ResolverOptions
	who     identity
	ssh     string        // empty: not installed
	running chan struct{} // limits processes
	files   *files

	mu      sync.Mutex
	answers map[Lookup]cached
}

type cached struct {
	settings HostConfig
	err      error
	stamp    string // of its files
}

// New finds ssh and the user, but reads no configuration yet.
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

// Resolve returns what OpenSSH would use for the host. The error is an *Error or the context's cause.
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

// read uses the local reader if that understands every line, else ssh if there is one. lines are the local reader's.
func (r *Resolver) read(ctx context.Context, q Lookup) (raw, []line, error) {
	values, lines, err := r.files.evaluate(q)
	if err == nil || r.ssh == "" {
		return values, lines, err
	}
	values, err = r.askOpenSSH(ctx, q)
	return values, nil, err
}

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

// hostName has nothing that a shell or ssh's command line interprets.
var hostName = text.Pattern(`^[\pL\pN_.:\[\]][\pL\pN_.:%\[\]-]*$`)

// userName has nothing that a shell interprets: a ProxyCommand may contain it.
var userName = text.Pattern(`^[\pL\pN_.@+\\][\pL\pN_.@+\\ -]*\$?$`)

// Valid refuses names that could be taken for an option or interpreted by a shell.
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
		if strings.ContainsAny(q.User, "'`\";&<>|(){}") { // like ssh
			return &Error{Problem: fmt.Sprintf("the user name %q has a character that ssh refuses", q.User)}
		}
	}
	if q.Port < 0 || q.Port > 65535 {
		return &Error{Problem: fmt.Sprintf("%d is not a port", q.Port)}
	}
	return nil
}

func validTarget(s HostConfig, who identity) error {
	if s.User == "" { // ssh refuses to run then
		return &Error{Problem: fmt.Sprintf("there is no user name to log in with: this machine has no account for uid "+
			"%s; set User in ssh_config or `user:` in hosts.yaml", who.uid)}
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

// evaluate returns a host's configuration, or the *Error of the first unsupported line anywhere.
func (f *files) evaluate(q Lookup) (raw, []line, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refused != nil {
		return nil, nil, f.refused
	}
	var lines []line // the first line of a keyword wins, unless each counts
	set := func(keyword, value string) {
		if value != "" {
			lines = append(lines, line{keyword: keyword, words: []string{value}})
		}
	}
	set("hostname", strings.ReplaceAll(q.HostName, "%", "%%"))
	set("user", q.User)
	if q.Port != 0 {
		set("port", fmt.Sprint(q.Port))
	}
	for _, l := range f.all {
		if l.isFor(q.Host) && l.counts(lines) {
			lines = append(lines, l)
		}
	}
	values := raw{}
	for _, l := range lines {
		values[l.keyword] = append(values[l.keyword], l.words...)
	}
	if name := q.target(values.first("hostname")); isUnusual(name) {
		return nil, nil, located(&Error{keyword: "hostname", Problem: "the address " + name + withoutSSH}, lines)
	}
	return values, lines, nil
}

func (l *line) isFor(host string) bool {
	return !slices.ContainsFunc(l.hosts, func(patterns []string) bool { return !MatchesAny(patterns, host) })
}

func (l *line) counts(before []line) bool {
	h := honoured()[l.keyword]
	for _, known := range before {
		switch {
		case known.keyword == l.keyword && (h.arity != each || slices.Equal(known.words, l.words)):
			return false
		case known.keyword == "proxyjump" && !isNone(known.words[0]) &&
			l.keyword == "proxycommand", known.keyword == "proxycommand" && l.keyword == "proxyjump":
			return false // one replaces the other
		}
	}
	return true
}

// MatchesAny says whether a pattern of ssh_config or known_hosts matches, and no negated one.
// `*` is any text, `?` any byte, as in OpenSSH.
func MatchesAny(patterns []string, name string) bool {
	found := false
	for _, pattern := range patterns {
		plain, negated := strings.CutPrefix(pattern, "!")
		switch {
		case !text.MatchGlob([]byte(plain), []byte(name)):
		case negated:
			return false
		default:
			found = true
		}
	}
	return found
}

// usualSpelling is how known_hosts writes an address: ::1 for 0:0:0:0:0:0:0:1.
func usualSpelling(name string) string {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.String()
	}
	return name
}

var unusual = text.Pattern(`(?i)^(0x[\da-f]*|\d+)(\.(0x[\da-f]*|\d+))*$`)

// isUnusual: only ssh knows this address: 127.1, 0x7f000001, or a numeric zone.
func isUnusual(name string) bool {
	if a, err := netip.ParseAddr(name); err == nil {
		return a.Zone() != "" && strings.Trim(a.Zone(), "0123456789") == ""
	}
	return unusual().MatchString(name)
}

// askOpenSSH runs `ssh -G`. r.running limits the processes.
func (r *Resolver) askOpenSSH(ctx context.Context, q Lookup) (raw, error) {
	select {
	case r.running <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-r.running }()
	ctx, cancel := context.WithTimeout(ctx, r.options.Timeout)
	defer cancel()
	var out, problems bytes.Buffer
	ssh := exec.CommandContext(ctx, r.ssh, append([]string{"-G"}, r.Destination(q)...)...)
	ssh.Stdout, ssh.Stderr = &out, &problems
	ssh.WaitDelay = time.Second // a child of `Match exec` may hold its stderr
	if err := ssh.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, sshProblem(problems.String(), err)
	}
	// ssh omits a list that it would refuse, and exits with 0.
	for complaint := range strings.Lines(problems.String()) {
		if strings.HasPrefix(complaint, "fill_default_options: ") {
			return nil, &Error{Problem: "ssh -G: " + strings.TrimSpace(complaint)}
		}
	}
	return parseOpenSSH(out.String()), nil
}

// ControlPath is the socket of a host's ssh master; "" if none, or with `ControlMaster yes` or `ask`, where ssh is the
// master. Only ssh knows it: versions hash differently (%C).
func (r *Resolver) ControlPath(ctx context.Context, q Lookup) (string, error) {
	if err := Valid(q); err != nil || r.ssh == "" {
		return "", err
	}
	values, err := r.askOpenSSH(ctx, q)
	if err != nil {
		return "", err
	}
	switch values.first("controlmaster") {
	case "yes", "true", "ask":
		return "", nil
	}
	return unlessNone(values.first("controlpath")), nil
}

// Program is the path of ssh(1); empty if not installed.
func (r *Resolver) Program() string { return r.ssh }

// Destination returns the arguments of ssh(1) for a host.
func (r *Resolver) Destination(q Lookup) []string {
	var arguments []string
	if r.options.File != "" {
		arguments = append(arguments, "-F", r.options.File)
	}
	if q.User != "" {
		arguments = append(arguments, "-l", q.User)
	}
	if q.Port != 0 {
		arguments = append(arguments, "-p", strconv.Itoa(q.Port))
	}
	if q.HostName != "" {
		arguments = append(arguments, "-o", "HostName="+strings.ReplaceAll(q.HostName, "%", "%%"))
	}
	return append(arguments, "--", q.Host)
}

var fileLine = text.Pattern(`(?m)^(/?\S+):? line (\d+): (.*)$`)

func sshProblem(text string, cause error) error {
	if m := fileLine().FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[2])
		return &Error{File: strings.TrimSuffix(m[1], ":"), Line: line, Problem: strings.TrimSpace(m[3])}
	}
	if _, exited := errors.AsType[*exec.ExitError](cause); !exited || strings.TrimSpace(text) == "" {
		text = cause.Error()
	}
	return &Error{Problem: "ssh -G: " + strings.TrimSpace(text)}
}

// parseOpenSSH reads `keyword value` lines. Where ssh has replaced tokens, percent signs become %%.
func parseOpenSSH(text string) raw {
	values := raw{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		key, value = cmp.Or(aliases[key], key), strings.Clone(value) // frees the rest of the output
		if key == "userknownhostsfile" || key == "identityagent" {
			value = strings.ReplaceAll(value, "%", "%%")
		}
		switch key {
		case "userknownhostsfile", "globalknownhostsfile":
			values[key] = paths(value)
		default:
			values[key] = append(values[key], value)
		}
	}
	if yes(values.first("batchmode")) && values.first("serveraliveinterval") == "300" {
		delete(values, "serveraliveinterval") // Debian's default with BatchMode is too long to detect a dead host
	}
	return values
}

// paths splits unquoted paths: a word that starts no path continues one with a space.
func paths(text string) (all []string) {
	for word := range strings.SplitSeq(text, " ") {
		if len(all) > 0 && !strings.ContainsAny(word[:min(1, len(word))], "/~%$") {
			all[len(all)-1] += " " + word
			continue
		}
		all = append(all, word)
	}
	return all
}
