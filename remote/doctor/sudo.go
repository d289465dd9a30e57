package doctor

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/doctor"
)

// checkSudo judges what sudo does for the login: it was tried.
func (e *examination) checkSudo(s *survey) doctor.Check {
	t := &s.trial
	path, account := cmp.Or(t.Genv, remote.DefaultGenv), remote.SudoersAccount(s.user, s.uid)
	step := remote.SudoStep(remote.SudoRefused, account, path)
	refusal := t.Refusal()
	if refusal == nil || e.host.NoSudo {
		refusal = &remote.Error{Err: errors.New("")}
	}
	allowed, missing := coverage(t)
	covered := "covers usage " + allowed + " of " + path
	return doctor.First(doctor.Sudo,
		doctor.If(e.host.NoSudo && s.uid == "0", "", "not needed: the login is root"),
		doctor.If(e.host.NoSudo, "no-root", "genv runs without root here (`sudo: false`): it shows devices and environments, and nothing can be enforced").
			Next("remove `sudo: false` for it from hosts.yaml and allow genv in sudoers: "+remote.SudoersLine(account, path)),
		doctor.If(t.UID == "", doctor.Unsure, "sudo was not tried"),
		doctor.If(t.NeedsTTY && t.Runs == "", "sudo-requires-tty", "%v", refusal.Err).Next(refusal.Next),
		doctor.If(t.Genv == "" && t.Lists && t.Runs == "", "", "sudo answers; what it allows of genv can't be tried, since none was found"),
		doctor.If(allowed != "" && refusal.Class == remote.SudoRefused, doctor.Cause(remote.SudoRefused), "%s, and not %s", covered, missing).Next(step),
		doctor.If(refusal.Class != "", doctor.Cause(refusal.Class), "%v", refusal.Err).Next(refusal.Next),
		doctor.If(!t.Lists, "", "runs usage serve of %s; what else it allows is not known, since it lists nothing without a password (listpw)", path),
		doctor.If(missing != "", doctor.Cause(remote.SudoRefused), "%s, and not %s", covered, missing).Next(step),
		doctor.If(slices.Contains(t.Allows, remote.AllowsEverything), "sudo-covers-everything",
			"covers every command: who gets hold of the account is root").Next("give the controller an account of its own, and "+step),
		doctor.If(slices.Contains(t.Allows, remote.AllowsAllOfGenv), "sudo-covers-all-of-genv",
			"covers all of %s, which can run any program as root (`genv lock`)", path).Next(step),
		doctor.If(true, "", "%s", covered))
}

// coverage is what sudo allows of that which a controller needs, and what it doesn't.
func coverage(t *remote.Trial) (allowed, missing string) {
	found := map[bool][]string{}
	for _, command := range []string{"snapshot", "execute", "serve"} {
		has := slices.Contains(t.Allows, "usage "+command) || command == "serve" && (t.Runs != "" || slices.Contains(t.Allows, "usage serve --token x"))
		found[has] = append(found[has], command)
	}
	return strings.Join(found[true], ", "), strings.Join(found[false], ", ")
}

// lazily compiles a pattern when it is first used: every start of genv would pay for it
// otherwise.
func lazily(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}
