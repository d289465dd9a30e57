package install

import (
	"context"

	"github.com/seed-3119e985/genv/remote"
)

// CheckUninstall says what Uninstall would do.
func (i *Installer) CheckUninstall(ctx context.Context, h remote.Host) (*Outcome, error) {
	ctx, cancel := i.limited(ctx)
	defer cancel()
	v, _, err := i.planUninstall(ctx, h)
	return v.result(err)
}

// Uninstall removes the program and what came with it. State, logs and the account stay; with Options.Purge only
// the account, since its uid must not be given to another one.
func (i *Installer) Uninstall(ctx context.Context, h remote.Host) (*Outcome, error) {
	ctx, cancel := i.limited(ctx)
	defer cancel()
	v, vars, err := i.planUninstall(ctx, h)
	if err == nil && v.state.handsOver() {
		err = v.changeState(ctx, StateShared)
	}
	if err == nil && (v.outcome.Result != Unchanged || len(v.state.Leftovers) > 0) {
		err = v.remove(ctx, vars)
	}
	return v.result(err)
}

// planUninstall decides what to remove. Lines of sudoers that genv did not write stay.
func (i *Installer) planUninstall(ctx context.Context, h remote.Host) (*visit, variables, error) {
	v, err := i.look(ctx, h)
	if err != nil {
		return v, nil, err
	}
	s := v.state
	if err := decidePackage(v.wanted.Path, s); err != nil {
		return v, nil, err
	}
	if s.Other || s.Link != "" {
		return v, nil, refuse("remove it by hand", "%s is not a file", v.wanted.Path)
	}
	if err := decideFolders(v.wanted.Path, s); err != nil {
		return v, nil, err
	}
	o := &v.outcome
	o.Arch, o.Result, o.Shims = archOf(v.login.Machine), Unchanged, s.Shims && v.shims() != ""
	_, known := rulesOf(s.Rules, v.wanted.Path)
	_, oldKnown := rulesOf(s.OldRules, v.wanted.Path)
	rules, earlier := s.RulesSum != "" && known && !s.RulesLink, s.OldSum != "" && oldKnown && !s.OldLink
	o.Sudoers = rules || earlier
	stay := map[string]bool{remote.SudoersFile: s.RulesSum != "" && !rules, oldRulesFile: s.OldSum != "" && !earlier}
	for file, stays := range stay {
		if stays {
			o.Notes = append(o.Notes, SudoersFolder+"/"+file+" has lines that genv did not write, and stays")
		}
	}
	if s.Sum != "" || o.Sudoers || o.Shims || i.Options.Purge {
		o.Result = Uninstalled
	}
	if s.handsOver() && !i.Options.Purge {
		o.Notes = append(o.Notes, "root's service goes, and every user can write the state that stays; `--state "+
			"root` with the next installation lets root own it again")
	}
	if i.Options.Purge {
		if err := v.mayPurge(ctx); err != nil {
			return v, nil, err
		}
	}
	return v, variables{
		{"path", v.wanted.Path},
		{"folder", SudoersFolder},
		{"shims", v.shims()},
		{"rules_file", remote.SudoersFile},
		{"rules", yes(rules)},
		{"earlier", yes(earlier)},
		{"program", yes(s.Sum != "")},
		{"account", i.Options.Account},
		{"key", i.Options.Key},
		{"purge", yes(i.Options.Purge)},
		{"units", unitsFolder},
		{"extras", yes(i.Options.Extras)},
	}, nil
}

// handsOver says that an uninstallation gives root's state to all users: without the program none could change it.
func (s *State) handsOver() bool { return s.Sum != "" && (len(s.Units) > 0 || s.Owned) }

func (v *visit) remove(ctx context.Context, vars variables) error {
	answer, err := v.change(ctx, script{text: extrasScript + uninstallScript, vars: vars})
	for _, folder := range answer["kept"] {
		v.outcome.Notes = append(v.outcome.Notes, folder+" stays")
	}
	return err
}

// mayPurge refuses to remove the state of environments that are active, or that genv 1.4.3 uses.
func (v *visit) mayPurge(ctx context.Context) error {
	purge := script{text: newHostScript + purgeScript, vars: variables{{"path", v.wanted.Path}}}
	answer, err := v.ask(ctx, v.access, purge)
	if err == nil && answer.has("refused") {
		next := "wait until they have ended, or remove genv alone with --uninstall"
		if v.state.Sum == "" {
			next = "wait until it has ended; or install genv, which knows whether it belongs to an environment, and " +
				"purge again"
		}
		err = refuse(next, "the state stays: %s", answer.one("refused"))
	}
	return err
}
