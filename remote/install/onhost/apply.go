package onhost

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// leftover begins temporary names. sudo ignores the dot.
const leftover = ".genv-install-"

// ownLeftover is this host's, as hosts may share /usr/local. Host names have no "=", so gpu-1's doesn't start with
// gpu's.
func ownLeftover() string {
	name, _ := os.Hostname() // the kernel always has one
	return leftover + name + "="
}

func staged(file string) string {
	return filepath.Join(filepath.Dir(file), ownLeftover()+filepath.Base(file))
}

const (
	rulesFile   = SudoersFolder + "/" + remote.SudoersFile
	earlierFile = SudoersFolder + "/" + oldRulesFile
)

func (i *installation) install(ctx context.Context) error {
	plan, err := Decide(i.Request, i.found)
	if err != nil {
		return err
	}
	i.outcome = &plan.Outcome
	if i.Check {
		return nil
	}
	i.removeLeftovers(ownLeftover())
	defer i.removeLeftovers(ownLeftover())
	if plan.files() {
		err = i.apply(ctx, plan)
	}
	ctx = uninterrupted(ctx)
	if err == nil && (plan.State != "" || plan.Units) {
		err = i.changeState(ctx, plan.State)
	}
	if err == nil && plan.Extras { // also renews those of an earlier program
		err = i.addExtras(ctx, plan.Program)
	}
	if !i.Known && i.found.Found != i.Path && i.foundBySudo() != i.Path {
		i.outcome.note("sudo doesn't find it as genv: set `genv: %s` for the host in hosts.yaml", i.Path)
	}
	return err
}

// uninterrupted is for what a lost connection must not stop.
func uninterrupted(ctx context.Context) context.Context {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	return context.WithoutCancel(ctx)
}

// removeLeftovers also cleans up after interrupted runs: the lock excludes a running one.
func (i *installation) removeLeftovers(begin string) {
	dirs := []string{path.Dir(i.Path), SudoersFolder}
	if i.found.ShimsUnsafe == nil {
		dirs = append(dirs, path.Dir(i.shims()[0].path))
	}
	for _, dir := range dirs {
		files, _ := filepath.Glob(i.at(path.Join(dir, begin+"*"))) // a valid pattern
		for _, file := range files {
			_ = os.Remove(file) // retried by the next run
		}
	}
}

// change replaces a file if a program accepts it, before and after.
type change struct {
	path, kind, step string // kind is a key of failures
	isNew            bool   // there is no file yet
	data             []byte
	mode             uint32
	before, after    []string // program and arguments; empty: none
}

func (i *installation) changes(ctx context.Context, plan *Plan) (all []change, err error) {
	if file := i.at(i.Path); plan.Program {
		c := change{path: file, isNew: i.found.Sum == "", kind: "run", step: "binary", mode: 0o755}
		c.before, c.after = []string{staged(file), "version"}, []string{file, "version"}
		c.data, err = os.ReadFile(i.Program)
		all = append(all, c)
	}
	if file := i.at(rulesFile); plan.Sudoers {
		c := change{path: file, isNew: i.found.Rules.Sum == "", kind: "visudo", step: "sudoers", mode: 0o440}
		c.data, c.before = []byte(plan.Rules), []string{"visudo", "-cf", staged(file)}
		if _, err := i.run(ctx, "visudo", "-c"); err == nil { // all of sudoers is valid now
			c.after = []string{"visudo", "-c"}
		}
		all = append(all, c)
	}
	return all, err
}

// apply changes nothing in use before commit.
func (i *installation) apply(ctx context.Context, plan *Plan) error {
	changes, err := i.changes(ctx, plan)
	if err == nil {
		err = os.MkdirAll(i.at(path.Dir(i.Path)), 0o755)
	}
	for _, c := range changes {
		if err == nil {
			err = folder.WriteFile(staged(c.path), c.data, c.mode)
		}
	}
	if err != nil {
		return i.failure("write", err)
	}
	for _, c := range changes {
		said, err := i.run(ctx, c.before[0], c.before[1:]...)
		if err != nil {
			return i.failure(c.kind, err)
		}
		if c.kind == "run" {
			i.outcome.Now.Version, _, _ = strings.Cut(said, "\n")
		}
		if err := i.step(ctx, c.kind); err != nil {
			return err
		}
	}
	files := map[string]string{i.Path: i.found.Sum, rulesFile: i.found.Rules.Sum, earlierFile: i.found.Earlier.Sum}
	for file, sum := range files { // others may not use the lock
		if now := fileSum(i.at(file)); now != sum && (file != i.Path || now != i.Sum) {
			return i.failure("changed", fmt.Errorf("%s has another checksum", file))
		}
	}
	if err := i.failure("account", i.makeAccount(ctx, plan.Key)); err != nil {
		return err
	}
	if err := i.step(ctx, "lock"); err != nil {
		return err
	}
	return i.commit(uninterrupted(ctx), plan, changes)
}

// commit renames the files into place, or restores all. removeLeftovers removes the old ones.
func (i *installation) commit(ctx context.Context, plan *Plan, changes []change) (err error) {
	var begun []change
	for _, c := range changes {
		if err == nil {
			begun = append(begun, c)
			err = i.replace(ctx, &c, plan.Earlier && c.kind == "visudo")
		}
	}
	for _, shim := range i.shims() {
		if plan.Shims && err == nil {
			err = i.failure("write", i.put(ctx, shim))
		}
	}
	if earlier := i.at(earlierFile); err != nil && plan.Earlier {
		_ = os.Rename(old(earlier), earlier) // it may not have moved
	}
	for _, c := range begun {
		if err != nil && os.Rename(old(c.path), c.path) != nil && c.isNew {
			_ = os.Remove(c.path)
		}
	}
	_, _ = i.step(ctx, "shims"), i.step(ctx, "sync") // maybe no one waits any more
	return err
}

func old(file string) string { return staged(file) + ".old" }

// replace makes a change, and keeps the old file.
func (i *installation) replace(ctx context.Context, c *change, earlierGoes bool) error {
	err := folder.Ignore(os.Link(c.path, old(c.path)), os.ErrNotExist)
	if err == nil {
		err = os.Rename(staged(c.path), c.path)
	}
	if err == nil {
		err = syncFolder(filepath.Dir(c.path))
	}
	if earlier := i.at(earlierFile); err == nil && earlierGoes {
		err = os.Rename(earlier, old(earlier))
	}
	if err != nil {
		return i.failure("write", err)
	}
	_ = i.step(ctx, c.step)
	if len(c.after) > 0 {
		_, err = i.run(ctx, c.after[0], c.after[1:]...)
	}
	return i.failure(c.kind, err)
}

func syncFolder(dir string) error {
	d, err := folder.OpenExisting(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return folder.Ignore(d.Sync(), syscall.EINVAL) // some file systems can't
}

// failures have a text and a next step. %s is the program's path.
var failures = map[string][2]string{
	"write": {"a file can't be written", "look for free space and for mounts that are read-only on the host"},
	"checksum": {
		"the program arrived with another checksum",
		"run it again; if it fails again, the connection or the host's disk changes data",
	},
	"run": {
		"the new program doesn't run from %s",
		"look for a mount with noexec, or a kernel that allows only known programs; the files are as before",
	},
	"visudo": {
		"visudo refuses the lines for genv",
		"correct what visudo says with `sudo visudo -c` on the host; the files are as before",
	},
	"busy": {"another installation is under way", "run it again when the other one has ended"},
	"state": {
		"genv is in place, and who owns the state was not changed",
		"look at `systemctl status genv-host` on the host, then run it again with --state root or --state shared",
	},
	"account": {
		"the controller's account can't be set up there",
		"make it there by hand, with the key of /etc/genv/controller.pub; the files are as before",
	},
	"extras": {
		"genv is in place, but some of its parts are not", "correct what is named on the host, then run it again",
	},
	"folder": {
		"there is no folder of root's alone with room for the program in which it runs",
		"have one of /var/lib, /root and the folder of %s writable, mounted without noexec, and with 100 MB of free space",
	},
	"changed": {"another process changed the program meanwhile", "run it again"},
}

func (i *installation) failure(kind string, err error) error {
	if err == nil {
		return nil
	}
	return Failure(kind, i.Path, text.OneLine(err.Error())+i.made)
}

// Failure is for an installation that gave up, leaving the host unchanged. why is its programs' output.
func Failure(kind, path, why string) error {
	said, known := failures[kind]
	if !known {
		said = [2]string{"the installation failed: " + kind, "read what the host said above"}
	}
	if why != "" {
		why = ": " + why
	}
	named := strings.NewReplacer("%s", path)
	return remote.Errorf(remote.CommandFailed, "%s%s", named.Replace(said[0]), why).WithNext(named.Replace(said[1]))
}
