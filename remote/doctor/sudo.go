package doctor

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

// sudoFailed is the check of sudo that fails, with what to add to sudoers.
func (s *survey) sudoFailed(class remote.Class, detail string) doctor.Check {
	return problem(doctor.Sudo, doctor.Failed, doctor.Cause(class), detail, remote.SudoStep(class, s.sudoUser(), s.sudoPath()))
}

// sudoPath is the genv that sudo has to allow, and sudoUser for whom.
func (s *survey) sudoPath() string {
	return cmp.Or(s.programs["sudo"].path, s.programs["login"].path, remote.DefaultGenv)
}

func (s *survey) sudoUser() string { return cmp.Or(plainUser(s.user), "USER") }

// checkSudo judges what sudo allows the login to do.
func (e *examination) checkSudo(s *survey) doctor.Check {
	last := doctor.OneLine(lastLine(s.sudo))
	switch {
	case e.host.NoSudo && s.uid == 0:
		return doctor.Good(doctor.Sudo, "not needed: the login is root")
	case e.host.NoSudo:
		return problem(doctor.Sudo, doctor.Warning, "no-root", "genv runs without root here (`sudo: false`): it shows devices and environments, and nothing can be enforced",
			"remove `sudo: false` for it from hosts.yaml and allow genv in sudoers: "+remote.SudoersLine(s.sudoUser(), s.sudoPath()))
	case s.status < 0:
		return doctor.Unknown(doctor.Sudo, "sudo was not asked")
	case s.status == 127:
		return problem(doctor.Sudo, doctor.Failed, doctor.Cause(remote.Sudo), "there is no sudo: "+last, "install sudo on the host, or log in as root with `sudo: false` for it in hosts.yaml")
	case s.status != 0 && noRights().MatchString(s.sudo):
		return s.sudoFailed(remote.SudoRefused, last)
	case s.status != 0 && wantsPassword().MatchString(s.sudo):
		return s.sudoFailed(remote.Sudo, "sudo wants a password, or knows no rule for the account: "+last)
	case s.status != 0:
		return s.sudoFailed(remote.Sudo, fmt.Sprintf("sudo -n -l failed with status %d: %s", s.status, last))
	}
	rules, err := parseSudoers(s.sudo)
	switch {
	case err != nil:
		return problem(doctor.Sudo, doctor.Warning, "sudo-unclear", err.Error(), "look at `sudo -l` on the host, and compare it with docs/operations.md")
	case rules.requireTTY:
		return problem(doctor.Sudo, doctor.Failed, "sudo-requires-tty", "sudoers has `Defaults requiretty`, and genv has no terminal", "exempt the account in sudoers: Defaults:"+s.sudoUser()+" !requiretty")
	}
	return s.checkCoverage(rules)
}

// checkCoverage compares what sudo allows with what a controller needs of it.
func (s *survey) checkCoverage(rules sudoRules) doctor.Check {
	path, found := s.sudoPath(), map[sudoAnswer][]string{}
	for _, command := range []string{"snapshot", "execute", "serve"} {
		args := []string{"usage", command}
		if command == "serve" {
			args = append(args, "--token", "0123456789abcdef")
		}
		answer := rules.allows(path, args...)
		found[answer] = append(found[answer], command)
	}
	missing := strings.Join(found[sudoRefused], ", ")
	covered := "covers usage " + strings.Join(found[sudoAllowed], ", ") + " of " + path
	broad := func(program string, args ...string) bool { return rules.allows(program, args...) == sudoAllowed }
	warning := func(cause doctor.Cause, detail, before string) doctor.Check {
		return problem(doctor.Sudo, doctor.Warning, cause, detail, before+remote.SudoStep(remote.SudoRefused, s.sudoUser(), path))
	}
	switch {
	case len(found[sudoWithPassword]) > 0:
		return s.sudoFailed(remote.Sudo, "sudo wants a password for usage "+strings.Join(found[sudoWithPassword], ", ")+" of "+path)
	case len(found[sudoAllowed]) == 0:
		return s.sudoFailed(remote.SudoRefused, "sudoers has rules for the account, and none covers usage snapshot, execute or serve of "+path)
	case missing == "serve":
		return warning("sudo-lacks-serve", covered+", and not serve: each question costs a command", "")
	case missing != "":
		return s.sudoFailed(remote.SudoRefused, covered+", and not "+missing)
	case broad("/bin/sh", "-c", "id") && broad("/usr/bin/env", "sh"):
		return warning("sudo-covers-everything", "covers every command: who gets hold of the account is root", "give the controller an account of its own, and ")
	case broad(path, "lock", "sh"), broad(path, "run", "sh"), broad(path, "shell"):
		return warning("sudo-covers-all-of-genv", "covers all of "+path+", which can run any program as root (`genv lock`)", "")
	}
	return doctor.Good(doctor.Sudo, "%s", covered)
}

var (
	noRights      = lazily(`(?m)(is not in the sudoers file|^Sorry, user \S+ (is not allowed|may not run sudo))`)
	wantsPassword = lazily(`(?m)^sudo: (a password is required|a terminal is required|no tty present|sorry, you must have a tty)`)
	ordinaryUser  = lazily(`^[A-Za-z_][A-Za-z0-9_.-]{0,31}$`)
)

// plainUser is a user name without unusual characters; empty for another one.
func plainUser(name string) string {
	if ordinaryUser().MatchString(name) {
		return name
	}
	return ""
}

// lazily compiles a pattern when it is first used: every start of genv would pay for it
// otherwise.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
