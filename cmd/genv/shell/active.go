package shell

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Active is an environment as its shells' variables describe it.
type Active struct {
	EID     snapshot.EnvID
	Config  snapshot.EnvConfig
	Devices []snapshot.DeviceIndex
	// UUIDs are those of Devices on a guarded host, where programs see only these; nil otherwise. An entry may be
	// several MIG instances, with commas.
	UUIDs []snapshot.GPUUUID
}

// environmentVariables are set in the shells of an environment. GENV_SHELL marks them as active.
var environmentVariables = []string{
	"GENV_SHELL", "GENV_ENVIRONMENT_ID", "GENV_ENVIRONMENT_NAME", "GENV_GPU_MEMORY", "GENV_GPUS",
	"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES",
}

// Activate is for a shell that enters an environment.
func Activate(a Active, noPrompt bool) Edit {
	change := Update(a)
	change.Enter = true
	if noPrompt {
		change.Prefix = ""
	}
	return change
}

// Update is for an active shell after an attach, a detach or a config.
func Update(a Active) Edit {
	values := map[string]string{
		"GENV_SHELL":            "1",
		"GENV_ENVIRONMENT_ID":   string(a.EID),
		"GENV_ENVIRONMENT_NAME": a.Config.Name,
		"GENV_GPU_MEMORY":       a.Config.GPUMemory.String(),
		"GENV_GPUS":             a.Config.GPUCount(),
		"CUDA_DEVICE_ORDER":     "PCI_BUS_ID",
		"CUDA_VISIBLE_DEVICES":  a.VisibleDevices(),
	}
	change := Edit{Prefix: Prompt(cmp.Or(a.Config.Name, string(a.EID)))}
	for _, variable := range environmentVariables {
		if value := values[variable]; value != "" {
			change.Set = append(change.Set, Variable{variable, value})
		} else {
			change.Unset = append(change.Unset, variable)
		}
	}
	return change
}

// Deactivate restores the shell's former values.
func Deactivate() Edit { return Edit{Restore: environmentVariables} }

// VisibleDevices is the value of CUDA_VISIBLE_DEVICES. Without devices it is "-1", an invalid index, which hides all
// (CUDA C++ Programming Guide, "CUDA Environment Variables"): some programs treat an empty value as a missing one.
func (a *Active) VisibleDevices() string {
	switch {
	case len(a.Devices) == 0:
		return "-1"
	case a.UUIDs == nil:
		return text.JoinIndices(a.Devices)
	}
	return JoinUUIDs(a.UUIDs)
}

// JoinUUIDs has the format of CUDA_VISIBLE_DEVICES.
func JoinUUIDs(list []snapshot.GPUUUID) string {
	names := make([]string, len(list))
	for i, uuid := range list {
		names[i] = string(uuid)
	}
	return strings.Join(names, ",")
}

// ErrNotInitialised means that no initialised shell waits for code.
//
//nolint:revive,staticcheck // 1.4.3's words
var ErrNotInitialised = errors.New(`Your shell is not properly initialized at the moment.
Run the following command to initialize it.
You should also add it to your ~/.bashrc or any equivalent file.

    eval "$(genv shell --init)"
`)

// Caller is the shell that runs this command through its genv function.
type Caller struct {
	Kind   Kind
	PID    snapshot.PID // as the shell claims: check its owner before it gets into the state files
	answer io.Writer
	render func(Edit) (string, error)
}

// CallerFrom reads variables that the genv function sets. Programs that this one starts don't inherit its descriptor,
// because the shell waits until all copies are closed.
func CallerFrom(getenv func(string) string) (Caller, error) {
	kind, err := ParseKind(getenv("GENV_SHELL_KIND"))
	fd, fdErr := strconv.ParseUint(getenv("GENV_SHELL_FD"), 10, 16)
	pid, pidErr := strconv.ParseInt(getenv("GENV_SHELL_PID"), 10, 32)
	if err != nil || fdErr != nil || pidErr != nil || fd < 3 || pid < 2 {
		return Caller{}, ErrNotInitialised
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
		return Caller{}, ErrNotInitialised
	}
	render := Shell143{Environ: getenv}.renderInitialised
	return Caller{
		Kind: kind, PID: snapshot.PID(pid), answer: os.NewFile(uintptr(fd), "the calling shell"), render: render,
	}, nil
}

// Apply makes the shell change once the program ends with status 0. Call it once, after everything that can fail.
func (c Caller) Apply(change Edit) error {
	code, err := c.render(change)
	if err != nil {
		return err
	}
	if _, err := io.WriteString(c.answer, code); err != nil {
		return fmt.Errorf("answer the shell: %w", err)
	}
	return nil
}

// Edit is a change of the calling shell. Its code only calls functions that Init defines.
type Edit struct {
	Set     []Variable // to export, in order
	Unset   []string
	Restore []string // on leaving the environment: their former values come back, as do PATH and PS1
	Enter   bool     // puts the folder of the shims first in PATH, and Prefix before PS1
	Prefix  string   // from Prompt; empty to keep PS1. Without Enter it replaces the old prefix
}

// Variable is an exported variable.
type Variable struct{ Name, Value string }

// Render returns the code for an initialised shell, or ErrUnquotable.
func (c Edit) Render() (string, error) {
	var code script
	for _, v := range c.Set {
		code.call("__genv_set", v.Name, v.Value)
	}
	for _, unset := range c.Unset {
		code.call("__genv_unset", unset)
	}
	if c.Enter {
		code.call("__genv_path_add", "PATH")
	}
	if len(c.Restore) > 0 {
		code.call("__genv_path_remove", "PATH")
	}
	for _, restored := range c.Restore {
		code.call("__genv_restore", restored)
	}
	switch {
	case len(c.Restore) > 0:
		code.call("__genv_prompt", "PS1", "")
	case c.Prefix == "":
	case c.Enter:
		code.call("__genv_prompt", "PS1", c.Prefix)
	default:
		code.call("__genv_prompt_replace", "PS1", c.Prefix)
	}
	return code.finish()
}

type script struct {
	text strings.Builder
	err  error
}

func (s *script) line(words ...string) { s.text.WriteString(strings.Join(words, " ") + "\n") }

func (s *script) quote(value string) string {
	quoted, err := Quote(value)
	s.err = cmp.Or(s.err, err)
	return quoted
}

func (s *script) call(function, variable string, values ...string) {
	s.err = cmp.Or(s.err, checkName(variable))
	words := []string{function, variable}
	for _, value := range values {
		words = append(words, s.quote(value))
	}
	s.line(words...)
}

func (s *script) finish() (string, error) {
	if s.err != nil {
		return "", fmt.Errorf("code for the shell: %w", s.err)
	}
	return s.text.String(), nil
}

// A shell that genv 1.4.3 initialised evaluates the output of `genv activate --shell PID`, `deactivate --shell PID` and
// `shell --reattach`. Two exported lists record changes, with colons between the names; 1.4.3 adds a name each time:
//
//	GENV_ENVS         variables that deactivate unsets
//	GENV_BACKUP_ENVS  variables whose former values are in GENV_BACKUP_ENV_NAME
//
// The code for such a shell uses only export and unset, and maintains these lists.
const (
	listSet      = "GENV_ENVS"
	listBackups  = "GENV_BACKUP_ENVS"
	backupPrefix = "GENV_BACKUP_ENV_"
)

// Shell143 is a shell that 1.4.3 initialised.
type Shell143 struct {
	Environ func(string) string // such as os.Getenv
	Shims   string              // the folder of the shims; empty for none
}

// Active reports whether 1.4.3's activation of an environment is in effect.
func (s Shell143) Active() bool { return s.Environ(listSet) != "" }

// Caller is the shell as a caller whose answer goes to out.
func (s Shell143) Caller(pid string, out io.Writer) (Caller, error) {
	n, err := strconv.ParseInt(pid, 10, 32)
	if err != nil || n < 2 {
		return Caller{}, ErrNotInitialised
	}
	return Caller{PID: snapshot.PID(n), answer: out, render: s.Render}, nil
}

// Render returns a change as code. Without Enter the prompt stays, as in 1.4.3.
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

// renderInitialised also undoes an activation by 1.4.3.
func (s Shell143) renderInitialised(change Edit) (string, error) {
	code, err := change.Render()
	if err != nil || len(change.Restore) == 0 || !s.Active() {
		return code, err
	}
	more, err := s.Render(Edit{Restore: []string{snapshot.ClaimVariable}})
	return code + more, err
}

// list leaves out what can't be a variable.
func (s Shell143) list(name string) []string {
	return slices.DeleteFunc(strings.Split(s.Environ(name), ":"),
		func(name string) bool { return checkName(name) != nil })
}

type script143 struct {
	script
	shell        Shell143
	keepLists    bool
	set, backups []string // the new content of the lists
}

func (c *script143) export(name, value string) { c.line("export " + name + "=" + c.quote(value)) }

// replace sets a variable, and keeps its first former value for restore.
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

// prompt works in the shell, because PS1 is seldom exported.
func (c *script143) prompt(prefix string) {
	c.set, c.backups = append(c.set, "PS1"), append(c.backups, "PS1")
	c.line("export " + backupPrefix + `PS1="${PS1-}"`)
	c.line("PS1=" + c.quote(prefix) + `"${PS1-}"`)
}

// restore undoes the changes of all variables in the lists, and of more. A name that is in the list twice is unset:
// 1.4.3 has overwritten the backup of the user's value.
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
