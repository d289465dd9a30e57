package doctor

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/doctor/sudoers"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

// The causes of what sudo allows.
const (
	noRoot        doctor.Cause = "no-root"
	coversAll     doctor.Cause = "sudo-covers-everything"
	coversGenv    doctor.Cause = "sudo-covers-all-of-genv"
	coversNoServe doctor.Cause = "sudo-lacks-serve"
	needsTerminal doctor.Cause = "sudo-requires-tty"
	sudoUnclear   doctor.Cause = "sudo-unclear"
)

// checkSudo judges what sudo allows the login to do.
func (e *examination) checkSudo(s survey) doctor.Check {
	is := func(status doctor.Status, cause doctor.Cause, detail, step string) doctor.Check {
		return problem(doctor.Sudo, status, cause, detail, step)
	}
	path := cmp.Or(s.programs["sudo"].path, s.programs["login"].path, remote.DefaultGenv)
	user := cmp.Or(plainUser(s.user), "USER")
	step := func(class remote.Class) string { return remote.SudoStep(class, user, path) }
	failed := func(class remote.Class, detail string) doctor.Check {
		return is(doctor.Failed, doctor.Cause(class), detail, step(class))
	}
	last := oneLine(lastLine(s.sudo))
	switch {
	case e.host.NoSudo && s.uid == 0:
		return doctor.Good(doctor.Sudo, "not needed: the login is root")
	case e.host.NoSudo:
		return is(doctor.Warning, noRoot, "genv runs without root here (`sudo: false`): it shows devices and environments, and nothing can be enforced",
			"remove `sudo: false` for it from hosts.yaml and allow genv in sudoers: "+remote.SudoersLine(user, path))
	case s.status < 0:
		return doctor.Unknown(doctor.Sudo, "sudo was not asked")
	case s.status == 127:
		return is(doctor.Failed, doctor.Cause(remote.Sudo), "there is no sudo: "+last, "install sudo on the host, or log in as root with `sudo: false` for it in hosts.yaml")
	case s.status != 0 && noRights().MatchString(s.sudo):
		return failed(remote.SudoRefused, last)
	case s.status != 0 && wantsPassword().MatchString(s.sudo):
		return failed(remote.Sudo, "sudo wants a password, or knows no rule for the account: "+last)
	case s.status != 0:
		return failed(remote.Sudo, fmt.Sprintf("sudo -n -l failed with status %d: %s", s.status, last))
	}
	rules, err := sudoers.Parse(s.sudo)
	if err != nil {
		return is(doctor.Warning, sudoUnclear, err.Error(), "look at `sudo -l` on the host, and compare it with docs/operations.md")
	}
	if rules.RequireTTY {
		return is(doctor.Failed, needsTerminal, "sudoers has `Defaults requiretty`, and genv has no terminal", "exempt the account in sudoers: Defaults:"+user+" !requiretty")
	}
	return e.checkCoverage(rules, path, is, step)
}

// checkCoverage compares what sudo allows with what a controller needs of it.
func (e *examination) checkCoverage(rules sudoers.Rules, path string, is func(doctor.Status, doctor.Cause, string, string) doctor.Check, step func(remote.Class) string) doctor.Check {
	var allowed, missing, password []string
	for _, c := range []struct {
		name string
		args []string
	}{
		{"snapshot", []string{"usage", "snapshot"}},
		{"execute", []string{"usage", "execute"}},
		{"serve", []string{"usage", "serve", "--token", "0123456789abcdef"}},
	} {
		switch rules.Allows(path, c.args...) {
		case sudoers.Allowed:
			allowed = append(allowed, c.name)
		case sudoers.WithPassword:
			password = append(password, c.name)
		default:
			missing = append(missing, c.name)
		}
	}
	covered := "covers usage " + strings.Join(allowed, ", ") + " of " + path
	broad := func(program string, args ...string) bool { return rules.Allows(program, args...) == sudoers.Allowed }
	switch {
	case len(password) > 0:
		return is(doctor.Failed, doctor.Cause(remote.Sudo), "sudo wants a password for usage "+strings.Join(password, ", ")+" of "+path, step(remote.Sudo))
	case len(allowed) == 0:
		return is(doctor.Failed, doctor.Cause(remote.SudoRefused), "sudoers has rules for the account, and none covers usage snapshot, execute or serve of "+path, step(remote.SudoRefused))
	case len(missing) == 1 && missing[0] == "serve":
		return is(doctor.Warning, coversNoServe, covered+", and not serve: each question costs a command", step(remote.SudoRefused))
	case len(missing) > 0:
		return is(doctor.Failed, doctor.Cause(remote.SudoRefused), covered+", and not "+strings.Join(missing, ", "), step(remote.SudoRefused))
	case broad("/bin/sh", "-c", "id") && broad("/usr/bin/env", "sh"):
		return is(doctor.Warning, coversAll, "covers every command: who gets hold of the account is root", "give the controller an account of its own, and "+step(remote.SudoRefused))
	case broad(path, "lock", "sh"), broad(path, "run", "sh"), broad(path, "shell"):
		return is(doctor.Warning, coversGenv, "covers all of "+path+", which can run any program as root (`genv lock`)", step(remote.SudoRefused))
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
