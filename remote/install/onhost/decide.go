package onhost

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// What was done to a host.
const (
	Unchanged   = "unchanged"
	Installed   = "installed"
	Upgraded    = "upgraded"
	Repaired    = "repaired" // the program was there; sudoers or shims were missing
	Uninstalled = "uninstalled"
)

const (
	StateRoot   = "root"   // through its service
	StateShared = "shared" // all users write it
)

// Plan is what to do on a host, and what to report.
type Plan struct {
	Outcome
	Program bool   // install it; false: keep
	Rules   string // new content of the sudoers file; empty: keep
	Earlier bool   // remove an earlier version's file
	Key     string // to log in as the account, which is created if missing; empty: keep
	State   string // who is to own the state; empty: keep
	Units   bool   // write root's service, or restart it with another program
	Extras  bool   // add or renew man pages etc.
}

func (p *Plan) files() bool { return p.Program || p.Sudoers || p.Shims || p.Key != "" }

// Decide compares what a host has with what it should have. After an error nothing was changed.
func Decide(w *Request, s *Survey) (*Plan, error) {
	plan := &Plan{Outcome: s.outcome(), Program: s.Sum != w.Sum}
	plan.Shims, plan.Now = !s.Shims && hasShims(w.Path), &Version{Sum: w.Sum}
	if !plan.Program {
		plan.Now = plan.Before
	}
	if err := decidePlace(w, s, plan.Program); err != nil {
		return nil, err
	}
	// Other users could redirect root's write.
	if f := s.ShimsUnsafe; f != nil && hasShims(w.Path) {
		plan.Shims = false
		plan.note("the shims are not linked: %s", f.why())
	}
	if err := plan.decideSudoers(w, s); err != nil {
		return nil, err
	}
	plan.decideAccount(w, s)
	plan.Extras = w.Extras && (plan.Program || len(s.Lacks) > 0)
	for _, what := range s.Lacks {
		plan.note("also: %s", text.OneLine(what))
	}
	if err := plan.decideState(w, s); err != nil {
		return nil, err
	}
	switch {
	case plan.Program && s.Sum == "":
		plan.Result = Installed
	case plan.Program:
		plan.Result = Upgraded
	case plan.files() || plan.State != "" || plan.Units || plan.Extras:
		plan.Result = Repaired
	}
	if s.Found != w.Path && s.Found != "" {
		plan.note("sudo finds another genv first: %s", s.Found)
	}
	return plan, nil
}

func (p *Plan) decideAccount(w *Request, s *Survey) {
	var steps []string
	for _, kind := range [][2]string{{"Allow", "add it to "}, {"Deny", "remove it from "}} {
		other := func(list string) bool { return !strings.HasPrefix(list, kind[0]) }
		if lists := slices.DeleteFunc(slices.Clone(s.SSHRefuses), other); len(lists) > 0 {
			steps = append(steps, kind[1]+strings.Join(lists, " and "))
		}
	}
	if w.Key != "" && len(steps) > 0 {
		p.note("sshd refuses logins of %s: %s in sshd_config there", w.Account, strings.Join(steps, " and "))
	}
	if w.Key == "" || s.HasKey {
		return
	}
	p.Key = w.Key
	if s.AccountUID == "" {
		p.note("the account %s is made", w.Account)
	}
	if len(s.SSHRefuses) == 0 {
		p.note("the controller's key may log in as %s", w.Account)
	}
}

// decideState lets root own a new host's state. An upgrade never changes the owner.
func (p *Plan) decideState(w *Request, s *Survey) error {
	switch {
	case w.State == StateRoot && !s.Systemd:
		return Refuse("use --state shared there", "root's service needs systemd, which the host doesn't run")
	case w.State == StateRoot && !(s.Unit && s.Owned), w.State == "" && s.Sum == "" && s.NotNew == "" && s.Systemd && !s.Unit:
		p.State, p.Units = StateRoot, true
		p.note("root owns the state by its service: `genv host status` there")
	case w.State == StateShared && (s.Unit || s.Owned):
		p.State = StateShared
		p.note("every user writes the state, and can change and remove what others have registered")
	case w.State == "" && s.Sum == "" && !s.Owned && s.NotNew != "":
		advice := ""
		if s.Systemd {
			advice = "; `--state root` lets root own it"
		}
		p.note("every user writes the state: %s%s", s.NotNew, advice)
	}
	if s.Unit && p.State == "" { // it runs the installed program
		p.Units = p.Program || s.Stale
	}
	return nil
}

// Refuse is the error for a host that was not changed.
func Refuse(next, format string, args ...any) error {
	return remote.Errorf(remote.InstallRefused, format, args...).WithNext(next)
}

// decidePlace leaves packages' files alone. All folders up to / must be root's alone: who can rename one decides what
// sudo runs.
func decidePlace(w *Request, s *Survey, replace bool) error {
	switch f := s.Unsafe; {
	case s.Package != "":
		return Refuse("upgrade the package "+s.Package+" on the host instead, or remove it first",
			"%s belongs to the package %s", s.Packaged, s.Package)
	case s.Other:
		return Refuse("remove it, or use another --path", "%s is there and is not a file", w.Path)
	case s.Link != "":
		return Refuse("use --path with the file itself, or remove the link", "%s is a symbolic link to %s", w.Path,
			s.Link)
	case s.Sum != "" && replace && !w.Upgrade:
		return Refuse("replace it with --upgrade", "%s is another genv: %s", w.Path, describe(s.Version, s.Sum))
	case f != nil:
		return Refuse(fmt.Sprintf("give it to root alone (chown root %[1]s; chmod go-w %[1]s), or use another --path",
			f.Path), "%s", f.why())
	}
	return nil
}

func describe(version, sum string) string {
	sum = "sha256 " + text.Cut(sum, 12)
	if version == "" {
		return sum + ", which doesn't say its version"
	}
	return "version " + version + ", " + sum
}

// decideSudoers keeps the accounts in the file, and in earlier versions', which it replaces. It never overwrites
// foreign lines.
func (p *Plan) decideSudoers(w *Request, s *Survey) error {
	if w.Account == "" {
		return nil
	}
	accounts, known := s.Rules.accounts(w.Path)
	earlier, ours := s.Earlier.accounts(w.Path)
	if p.Earlier = ours && s.Earlier.Sum != ""; !ours {
		p.note("%s/%s has lines that genv did not write, and is left as it is", SudoersFolder, oldRulesFile)
	}
	for _, account := range append(earlier, remote.SudoersAccount(w.Account, s.AccountUID)) {
		if !slices.Contains(accounts, account) {
			accounts = append(accounts, account)
		}
	}
	content := Sudoers(w.Path, s.SudoPath, accounts...)
	file := SudoersFolder + "/" + remote.SudoersFile
	switch {
	case !p.Earlier && known && strings.TrimRight(s.Rules.Content, "\n")+"\n" == content:
		return nil
	case s.AccountUID == "" && (w.Key == "" || slices.Contains(accounts, "USER")):
		return Refuse("create it there, or name another one with --sudoers-for", "the host has no account %s",
			text.Quoted(w.Account, 80))
	case s.NoVisudo:
		return Refuse("install sudo on the host", "there is no visudo on the host to check %s with", file)
	case !s.RulesFolder:
		return Refuse("create it for root alone, with a line `@includedir /etc/sudoers.d` in /etc/sudoers",
			"there is no %s on the host", SudoersFolder)
	case s.RulesUnsafe != nil:
		return Refuse("give it to root alone: chmod go-w "+s.RulesUnsafe.Path, "%s", s.RulesUnsafe.why())
	case s.Rules.Link:
		return Refuse("replace the link with a file, or remove it", "%s is a symbolic link", file)
	case !known:
		p.note("%s has lines that genv did not write, and is left as it is", file)
		p.Earlier = false
		return nil
	}
	p.Sudoers, p.Rules = true, content
	return nil
}
