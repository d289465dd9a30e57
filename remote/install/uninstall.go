package install

import (
	"context"

	"github.com/seed-3119e985/genv/remote"
)

// Uninstall removes the program and its parts. State, logs and the account stay; with Options.Purge only the account,
// since another one must not get its uid.
func (i *Installer) Uninstall(ctx context.Context, h remote.Host) (*Outcome, error) {
	return i.on(ctx, h, func(ctx context.Context, v *installation) error {
		vars, err := v.planUninstall(ctx)
		if err != nil || v.wanted.Check {
			return err
		}
		if v.found.handsOver() {
			err = v.changeState(ctx, StateShared)
		}
		if err != nil || v.outcome.Result == Unchanged && len(v.found.Leftovers) == 0 {
			return err
		}
		answer, err := v.change(ctx, extrasScript+uninstallScript, nil, vars)
		for _, folder := range answer["kept"] {
			v.outcome.Notes = append(v.outcome.Notes, folder+" stays")
		}
		return err
	})
}

func (v *installation) planUninstall(ctx context.Context) (map[string]string, error) {
	s := v.found
	if err := decidePackage(v.wanted.Path, s); err != nil {
		return nil, err
	}
	if s.Other || s.Link != "" {
		return nil, refuse("remove it by hand", "%s is not a file", v.wanted.Path)
	}
	if err := decideFolders(v.wanted.Path, s); err != nil {
		return nil, err
	}
	o := &v.outcome
	o.Arch, o.Result, o.Shims = architecture[v.login.one("machine")], Unchanged, s.Shims && v.shims() != ""
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
	if s.Sum != "" || o.Sudoers || o.Shims || v.wanted.Purge {
		o.Result = Uninstalled
	}
	if s.handsOver() && !v.wanted.Purge {
		o.Notes = append(o.Notes, "root's service goes, and every user can write the state that stays; `--state "+
			"root` with the next installation lets root own it again")
	}
	if v.wanted.Purge {
		if err := v.mayPurge(ctx); err != nil {
			return nil, err
		}
	}
	return map[string]string{
		"rules":   yes(rules),
		"earlier": yes(earlier),
		"program": yes(s.Sum != ""),
		"account": v.Options.Account,
		"purge":   yes(v.wanted.Purge),
	}, nil
}

// handsOver says that an uninstallation gives root's state to all users, who could not change it without the program.
func (s *Survey) handsOver() bool { return s.Sum != "" && (len(s.Units) > 0 || s.Owned) }

// mayPurge refuses to remove the state of active environments, or one that genv 1.4.3 uses.
func (v *installation) mayPurge(ctx context.Context) error {
	answer, err := v.ask(ctx, v.access, newHostScript+purgeScript)
	if err == nil && answer.has("refused") {
		next := "wait until they have ended, or remove genv alone with --uninstall"
		if v.found.Sum == "" {
			next = "wait until it has ended; or install genv, which knows whether it belongs to an environment, and " +
				"purge again"
		}
		err = refuse(next, "the state stays: %s", answer.one("refused"))
	}
	return err
}
