package onhost

import (
	"context"
	"fmt"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// uninstall removes the program and its parts. State, logs and the account stay; with Purge just the account, as its
// uid must not be reused.
func (i *installation) uninstall(ctx context.Context) error {
	rules, err := i.planUninstall(ctx)
	if err != nil || i.Check {
		return err
	}
	i.removeLeftovers(leftover)
	if i.outcome.Result == Unchanged {
		return nil
	}
	ctx = uninterrupted(ctx)
	if i.found.handsOver() {
		err = i.changeState(ctx, StateShared)
	}
	if err == nil {
		err = i.failure("write", i.removeAll(ctx, rules))
	}
	if err == nil {
		i.endUsages() // none can start and recreate the folders
		i.purge(ctx)
	}
	return err
}

// removeAll starts with sudoers: the right to run genv ends first.
func (i *installation) removeAll(ctx context.Context, rules []part) error {
	parts := rules
	if i.found.ShimsUnsafe == nil {
		parts = append(parts, i.shims()...)
	}
	parts = append(parts, i.extras(ctx, false)...)
	if i.Purge {
		parts = append(parts, i.units()...)
	}
	if err := i.takeAll(ctx, append(parts, part{path: i.Path})); err != nil {
		return err
	}
	return folder.Ignore(syncFolder(i.at(path.Dir(i.Path))), os.ErrNotExist)
}

func (i *installation) planUninstall(ctx context.Context) (rules []part, err error) {
	s, o := i.found, new(i.found.outcome())
	if err := decidePlace(i.Request, s, false); err != nil {
		return nil, err
	}
	i.outcome = o
	for n, found := range []*Rules{&s.Rules, &s.Earlier} {
		file := []string{rulesFile, earlierFile}[n]
		if _, ours := found.accounts(i.Path); !ours {
			o.note("%s has lines that genv did not write, and stays", file)
		} else if found.Sum != "" {
			rules = append(rules, part{path: file})
		}
	}
	o.Sudoers, o.Shims = len(rules) > 0, s.Shims && s.ShimsUnsafe == nil
	if s.Sum != "" || o.Sudoers || o.Shims || i.Purge {
		o.Result = Uninstalled
	}
	if s.handsOver() && !i.Purge {
		o.note("root's service goes, and every user can write the state that stays; `--state root` with the next " +
			"installation lets root own it again")
	}
	if i.Purge {
		err = i.mayPurge(ctx)
	}
	return rules, err
}

// handsOver: users couldn't change root's state without the program, so they get it.
func (s *Survey) handsOver() bool { return s.Sum != "" && (s.Unit || s.Owned) }

// mayPurge refuses with active environments, or if genv 1.4.3 uses the state.
func (i *installation) mayPurge(ctx context.Context) error {
	const next = "wait until they have ended, or remove genv alone with --uninstall"
	program := i.Program
	if i.found.Sum != "" {
		program = i.at(i.Path)
	}
	active, said, err := i.runAs(ctx, nil, "", program, "envs", "--format", "csv", "--no-header")
	switch old := i.genv143(); {
	case err != nil:
		return Refuse(next, "the state stays: genv does not say which environments are active: %w", err)
	case active != "":
		return Refuse(next, "the state stays: environments are active: %d", strings.Count(active, "\n"))
	case said != "": // what can't be read is unknown
		return Refuse(next, "the state stays: %s", said)
	case old != "":
		return Refuse(next, "the state stays: %s", old)
	}
	return nil
}

// endUsages ends root's processes of the program (even a replaced one) that controllers started. The mount namespace
// excludes containers' programs.
func (i *installation) endUsages() {
	ours, _ := os.Readlink("/proc/self/ns/mnt")
	for try := range 50 {
		processes, _ := proc.FS{}.PIDs() // as far as listed
		running := false
		for _, pid := range processes {
			process := fmt.Sprintf("/proc/%d/", pid)
			exe, _ := os.Readlink(process + "exe") // it may have ended
			namespace, _ := os.Readlink(process + "ns/mnt")
			status, _ := os.ReadFile(process + "status")
			words, _ := os.ReadFile(process + "cmdline")
			if strings.TrimSuffix(exe, " (deleted)") != i.Path || namespace != ours ||
				!strings.Contains(string(status), "\nUid:\t0\t") || !strings.Contains(string(words), "\x00usage\x00") {
				continue
			}
			running = true
			signal := map[int]syscall.Signal{0: syscall.SIGTERM, 25: syscall.SIGKILL}[try]
			_ = syscall.Kill(int(pid), signal) // it may have ended; signal 0 does nothing
		}
		if !running {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// purge removes the rest on request, and notes what stays.
func (i *installation) purge(ctx context.Context) {
	account, err := i.accounts.Named(ctx, i.Account)
	hasAccount := err == nil && i.Account != ""
	if i.Purge {
		for _, dir := range []string{"/var/tmp/genv", "/var/lib/genv", "/var/log/genv", "/run/genv"} {
			_ = os.RemoveAll(i.at(dir)) // a mount point stays, and is noted
		}
		if hasAccount && i.Key != "" {
			if err := i.removeKey(ctx, &account); err != nil {
				i.outcome.note("the controller's key stays in %s of %s: %s", keysFile, i.Account, err)
			}
		}
	}
	for _, dir := range []string{"/var/tmp/genv", "/var/lib/genv", "/var/log/genv", "/etc/genv"} {
		if _, err := os.Stat(i.at(dir)); err == nil {
			i.outcome.note("%s stays", dir)
		}
	}
	if hasAccount {
		i.outcome.note("the account %s stays", i.Account)
	}
}
