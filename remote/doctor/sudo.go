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

// sudoFailed is a row for sudo that fails, with what to add to sudoers.
func (s *survey) sudoFailed(holds bool, class remote.Class, detail string) doctor.Check {
	return doctor.If(holds, doctor.Cause(class), "%s", detail).Next(remote.SudoStep(class, s.sudoUser(), s.sudoPath()))
}

// sudoPath is the genv that sudo has to allow, and sudoUser for whom.
func (s *survey) sudoPath() string {
	return cmp.Or(s.programs["sudo"].path, s.programs["login"].path, remote.DefaultGenv)
}

func (s *survey) sudoUser() string { return cmp.Or(plainUser(s.user), "USER") }

// checkSudo judges what sudo allows the login to do.
func (e *examination) checkSudo(s *survey) doctor.Check {
	last := doctor.OneLine(lastLine(s.sudo))
	rules, err := parseSudoers(s.sudo)
	return doctor.First(doctor.Sudo,
		doctor.If(e.host.NoSudo && s.uid == "0", "", "not needed: the login is root"),
		doctor.If(e.host.NoSudo, "no-root", "genv runs without root here (`sudo: false`): it shows devices and environments, and nothing can be enforced").
			Next("remove `sudo: false` for it from hosts.yaml and allow genv in sudoers: "+remote.SudoersLine(s.sudoUser(), s.sudoPath())),
		doctor.If(s.status < 0, doctor.Unsure, "sudo was not asked"),
		doctor.If(s.status == 127, doctor.Cause(remote.Sudo), "there is no sudo: %s", last).Next("install sudo on the host, or log in as root with `sudo: false` for it in hosts.yaml"),
		s.sudoFailed(s.status != 0 && noRights().MatchString(s.sudo), remote.SudoRefused, last),
		s.sudoFailed(s.status != 0 && wantsPassword().MatchString(s.sudo), remote.Sudo, "sudo wants a password, or knows no rule for the account: "+last),
		s.sudoFailed(s.status != 0, remote.Sudo, fmt.Sprintf("sudo -n -l failed with status %d: %s", s.status, last)),
		doctor.If(err != nil, "sudo-unclear", "%v", err),
		doctor.If(rules.requireTTY, "sudo-requires-tty", "sudoers has `Defaults requiretty`, and genv has no terminal").Next("exempt the account in sudoers: Defaults:"+s.sudoUser()+" !requiretty"),
		s.checkCoverage(rules))
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
	step := remote.SudoStep(remote.SudoRefused, s.sudoUser(), path)
	return doctor.First(doctor.Sudo,
		s.sudoFailed(len(found[sudoWithPassword]) > 0, remote.Sudo, "sudo wants a password for usage "+strings.Join(found[sudoWithPassword], ", ")+" of "+path),
		s.sudoFailed(len(found[sudoAllowed]) == 0, remote.SudoRefused, "sudoers has rules for the account, and none covers usage snapshot, execute or serve of "+path),
		doctor.If(missing == "serve", "sudo-lacks-serve", "%s, and not serve: each question costs a command", covered).Next(step),
		s.sudoFailed(missing != "", remote.SudoRefused, covered+", and not "+missing),
		doctor.If(broad("/bin/sh", "-c", "id") && broad("/usr/bin/env", "sh"), "sudo-covers-everything",
			"covers every command: who gets hold of the account is root").Next("give the controller an account of its own, and "+step),
		doctor.If(broad(path, "lock", "sh") || broad(path, "run", "sh") || broad(path, "shell"), "sudo-covers-all-of-genv",
			"covers all of %s, which can run any program as root (`genv lock`)", path).Next(step),
		doctor.If(true, "", "%s", covered))
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
