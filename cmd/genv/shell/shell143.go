package shell

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
)

// A shell that genv 1.4.3 initialised evaluates what `genv activate --shell PID`, `deactivate --shell PID` and `shell
// --reattach` print. It records the changes in two exported lists with colons between the names, to which 1.4.3 adds a
// name each time:
//
//	GENV_ENVS         the variables that were set, to be unset by deactivate
//	GENV_BACKUP_ENVS  those that had a value, which GENV_BACKUP_ENV_NAME holds
//
// The code for such a shell only uses export and unset, and keeps the same lists, so that
// it also works in zsh and when 1.4.3 is installed again.
const (
	listSet      = "GENV_ENVS"
	listBackups  = "GENV_BACKUP_ENVS"
	backupPrefix = "GENV_BACKUP_ENV_"
)

// Shell143 is a shell that 1.4.3 initialised, as the variables that it exports show it.
type Shell143 struct {
	Environ func(string) string // such as os.Getenv
	Shims   string              // the folder of the shims; empty for none
}

// Active reports whether 1.4.3 has activated an environment in the shell that was not deactivated since.
func (s Shell143) Active() bool { return s.Environ(listSet) != "" }

// Caller is the shell as the caller of activate or deactivate; its answer goes to out.
func (s Shell143) Caller(pid string, out io.Writer) (Caller, error) {
	n, err := strconv.ParseInt(pid, 10, 32)
	if err != nil || n < 2 {
		return Caller{}, ErrNotInitialised
	}
	return Caller{PID: snapshot.PID(n), answer: out, render: s.Render}, nil
}

// Render writes a change as code for the shell. Without Enter the prompt stays: 1.4.3 doesn't show in it which
// environment is active.
func (s Shell143) Render(change Edit) (string, error) {
	code := &script143{shell: s}
	if len(change.Restore) > 0 {
		code.restore(change.Restore)
		return code.finish()
	}
	code.keepLists = s.Active() || change.Enter
	code.set, code.backups = s.list(listSet), s.list(listBackups)
	for _, v := range change.Set {
		code.replace(v.Name, v.Value)
	}
	for _, name := range change.Unset {
		code.line("unset " + name)
	}
	if path := s.Environ("PATH"); change.Enter && s.Shims != "" && !strings.Contains(":"+path+":", ":"+s.Shims+":") {
		code.replace("PATH", strings.TrimSuffix(s.Shims+":"+path, ":"))
	}
	if change.Enter && change.Prefix != "" {
		code.prompt(change.Prefix)
	}
	if code.keepLists {
		code.export(listSet, strings.Join(code.set, ":"))
		code.export(listBackups, strings.Join(code.backups, ":"))
	}
	return code.finish()
}

// renderInitialised is for a shell that this genv has initialised. If 1.4.3 has activated it
// before, deactivate also undoes that.
func (s Shell143) renderInitialised(change Edit) (string, error) {
	code, err := change.Render()
	if err != nil || len(change.Restore) == 0 || !s.Active() {
		return code, err
	}
	more, err := s.Render(Edit{Restore: []string{snapshot.ClaimVariable}})
	return code + more, err
}

// list are the names in one of the lists that can be variables.
func (s Shell143) list(name string) []string {
	return slices.DeleteFunc(strings.Split(s.Environ(name), ":"),
		func(name string) bool { return checkName(name) != nil })
}

// script143 is a script that keeps the lists.
type script143 struct {
	script
	shell        Shell143
	keepLists    bool
	set, backups []string // the new content of the lists
}

func (c *script143) export(name, value string) { c.line("export " + name + "=" + c.quote(value)) }

// replace sets a variable. What it was before the first time is kept for restore.
func (c *script143) replace(name, value string) {
	if old := c.shell.Environ(name); c.keepLists && !slices.Contains(c.set, name) {
		c.set = append(c.set, name)
		if old != "" {
			c.backups = append(c.backups, name)
			c.export(backupPrefix+name, old)
		}
	}
	c.export(name, value)
}

// prompt adds a prefix to PS1, which is seldom exported, so that only the shell knows it.
func (c *script143) prompt(prefix string) {
	c.set, c.backups = append(c.set, "PS1"), append(c.backups, "PS1")
	c.line("export " + backupPrefix + `PS1="${PS1-}"`)
	c.line("PS1=" + c.quote(prefix) + `"${PS1-}"`)
}

// restore undoes the changes of all variables in the lists, and of more. A variable that is in the list more than once
// is unset: at its second change, 1.4.3 has replaced the backup of the user's value by its own first value. Such a
// CUDA_VISIBLE_DEVICES would name devices that are no longer attached.
func (c *script143) restore(more []string) {
	set, backups := c.shell.list(listSet), c.shell.list(listBackups)
	names := append(slices.Clone(set), more...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		twice := slices.Contains(set[slices.Index(set, name)+1:], name)
		once := slices.Contains(set, name) && !twice
		own := slices.Contains(backups, name) && (name == "PATH" || name == "PS1" || once)
		switch old := c.shell.Environ(backupPrefix + name); {
		case own && name == "PS1":
			c.line("PS1=" + c.quote(old))
		case own && old != "":
			c.export(name, old)
		case name != "PATH":
			c.line("unset " + name)
		}
	}
	slices.Sort(backups)
	for _, name := range slices.Compact(backups) {
		c.line("unset " + backupPrefix + name)
	}
	c.line("unset " + listSet + " " + listBackups)
}
