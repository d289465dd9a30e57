package config

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// askOpenSSH runs `ssh -G`, which prints what ssh would do without connecting. Only so many run at a time.
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
	ssh.WaitDelay = time.Second // what `Match exec` started may have its stderr
	if err := ssh.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, sshProblem(problems.String(), err)
	}
	// The exit status is 0 for a list that ssh would refuse before a login, and the list is not printed.
	for complaint := range strings.Lines(problems.String()) {
		if strings.HasPrefix(complaint, "fill_default_options: ") {
			return nil, &Error{Problem: "ssh -G: " + strings.TrimSpace(complaint)}
		}
	}
	return parseOpenSSH(out.String()), nil
}

// ControlPath is the socket of the ssh that may run as master for a host; empty for none, as with `ControlMaster yes`
// or `ask`, where ssh is to be the master itself. ssh is asked: its versions have different hashes in the name (%C).
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

// Program is the path of ssh(1); empty where it is not installed.
func (r *Resolver) Program() string { return r.ssh }

// Destination is the arguments of ssh(1) for a host: the configuration file, what precedes it, and the name.
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

// sshProblem is the error that ssh printed, with the place it names.
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

// parseOpenSSH reads `keyword value` lines. Where ssh has replaced the tokens already, percent signs become %%.
func parseOpenSSH(text string) raw {
	values := raw{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), " ")
		key, value = cmp.Or(aliases[key], key), strings.Clone(value) // not all that ssh printed is kept
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
		delete(values, "serveraliveinterval") // Debian's default in BatchMode, too long to find a dead host
	}
	return values
}

// paths splits a list of paths, which ssh doesn't quote: other words are the rest of a path with a space.
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
