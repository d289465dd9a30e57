// Package shell writes the code that an activated shell evaluates. Its sub-packages smi and docker are the shims.
//
// A shell is initialised with
//
//	eval "$(genv shell --init)"
//
// which defines a function named genv. For commands that change the shell (activate, deactivate, attach, detach,
// config), the function opens one more file descriptor. It evaluates the code that the program writes there if the
// program ends with status 0. Such a command does
//
//	caller, err := shell.CallerFrom(os.Getenv) // ErrNotInitialised: print it
//	…                                          // change the state files
//	err = caller.Apply(shell.Activate(shell.Active{EID: "1667", Devices: devices}))
//
// The shell keeps former values in variables that are not exported. For a shell of genv 1.4.3 see Shell143.
package shell

import (
	_ "embed" // the scripts below
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/seed-3119e985/genv/snapshot/text"
)

//go:embed init.bash
var initBash string

//go:embed init.zsh
var initZsh string

// InitOptions are the settings of an initialised shell.
type InitOptions struct {
	Kind  Kind
	Exe   string // the absolute path of this program
	Shims string // first in an active shell's PATH, from EnsureShims; empty for none
	// Notices has the user's notices. NoticesRead is the user's own file, which is older than Notices if one is unread.
	Notices, NoticesRead string
	Preactivate          Preactivation // nil for none
}

// Init returns code that initialises a shell. It sets no variable that programs can see.
func Init(o InitOptions) (string, error) {
	template, ok := map[Kind]string{Bash: initBash, Zsh: initZsh}[o.Kind]
	if !ok {
		return "", fmt.Errorf("%w %q", ErrUnknownShell, o.Kind)
	}
	var words []string
	for _, w := range [][2]string{
		{"@EXE@", o.Exe}, {"@SHIMS@", o.Shims}, {"@NOTICES@", o.Notices}, {"@READ@", o.NoticesRead},
	} {
		quoted, err := Quote(w[1])
		if err != nil {
			return "", fmt.Errorf("a path of genv: %w", err)
		}
		words = append(words, w[0], quoted)
	}
	code := strings.NewReplacer(words...).Replace(withoutComments(template))
	activation, err := activation(o.Preactivate)
	return code + activation, err
}

// Deinit removes the functions of Init and 1.4.3. Deactivate first, because variables stay.
func Deinit(kind Kind) string {
	if kind == Zsh {
		return "unfunction -m genv '_genv_*' '__genv_*'"
	}
	return "unset -f genv $(compgen -A function _genv_) $(compgen -A function __genv_)"
}

func withoutComments(template string) string {
	var kept strings.Builder
	for line := range strings.Lines(template) {
		if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func activation(p Preactivation) (string, error) {
	if p == nil {
		return "", nil
	}
	line := "unset " + strings.Join([]string{preactivate, oldName, oldPrompt}, " ")
	for _, f := range preactivateFlags {
		line += " " + f.variable
	}
	line += "\ngenv"
	for _, arg := range p.Args() {
		word, err := Quote(arg)
		if err != nil {
			return "", fmt.Errorf("%s*: %w", preactivate, err)
		}
		line += " " + word
	}
	return line + "\n", nil
}

// ErrUnquotable is about a text or name that no shell can represent.
var ErrUnquotable = errors.New("cannot be given to a shell")

// Quote makes a text one word for bash and zsh, with any options set. It refuses only NUL bytes.
func Quote(text string) (string, error) {
	if strings.ContainsRune(text, 0) {
		return "", fmt.Errorf("%q %w: it contains a NUL byte", text, ErrUnquotable)
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'", nil
}

var identifier = text.Pattern(`^[A-Za-z_][A-Za-z0-9_]*$`)

func checkName(text string) error {
	if !identifier().MatchString(text) {
		return fmt.Errorf("the variable name %q %w", text, ErrUnquotable)
	}
	return nil
}

// Prompt is the prefix of an active shell's prompt. A question mark replaces characters that could start an expansion
// (bash's promptvars, zsh's prompt_subst).
func Prompt(environment string) string {
	harmless := func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" ._:/@+,=-", r) {
			return r
		}
		return '?'
	}
	return "(genv:" + strings.Map(harmless, environment) + ") "
}

// Kind is a shell that can be initialised.
type Kind string

// The shells: bash from version 4, zsh from version 5.
const (
	Bash Kind = "bash"
	Zsh  Kind = "zsh"
)

// ErrUnknownShell is about a shell that is no Kind.
var ErrUnknownShell = errors.New("unknown shell")

// ParseKind accepts a name, a path or a process's own name, such as "-zsh" or "/usr/bin/zsh-5.9".
func ParseKind(name string) (Kind, error) {
	base := strings.TrimPrefix(filepath.Base(strings.TrimSpace(name)), "-")
	base, _, _ = strings.Cut(base, "-")
	switch base {
	case "bash", "rbash":
		return Bash, nil
	case "zsh", "rzsh":
		return Zsh, nil
	}
	return "", fmt.Errorf("%w %q: genv run COMMAND works in every shell, and genv activate in bash and zsh (genv "+
		"shell --init --shell bash)", ErrUnknownShell, name)
}

// Preactivation makes a shell activate itself when it is initialised: `genv remote activate` opens a shell on a host
// with GENV_PREACTIVATE=1 and the variables of preactivateFlags, or 1.4.3's (oldName, oldPrompt). They are unset before
// the activation, so that child shells don't activate again.
//
// Its keys are the flags without dashes; a switch has the value 1.
type Preactivation map[string]string

const (
	preactivate = "GENV_PREACTIVATE"
	oldName     = preactivate + "_ENVIRONMENT_NAME"
	oldPrompt   = preactivate + "_PROMPT" // 0 for --no-prompt
)

var preactivateFlags = []struct {
	variable, flag string
	isSwitch       bool
}{
	{preactivate + "_EID", "id", false},
	{preactivate + "_NAME", "name", false},
	{preactivate + "_GPUS", "gpus", false},
	{preactivate + "_GPU_MEMORY", "gpu-memory", false},
	{preactivate + "_NO_PROMPT", "no-prompt", true},
	{preactivate + "_NO_ATTACH", "no-attach", true},
	{preactivate + "_OVER_SUBSCRIBE", "over-subscribe", true},
}

// PreactivationFrom reads the variables; nil if the shell isn't to activate itself, or is active.
func PreactivationFrom(getenv func(string) string) Preactivation {
	if getenv(preactivate) != "1" || getenv("GENV_ENVIRONMENT_ID") != "" {
		return nil
	}
	p := Preactivation{}
	for _, f := range preactivateFlags {
		if value := getenv(f.variable); value == "1" || value != "" && !f.isSwitch {
			p[f.flag] = value
		}
	}
	if name := getenv(oldName); name != "" && p["name"] == "" {
		p["name"] = name
	}
	if getenv(oldPrompt) == "0" {
		p["no-prompt"] = "1"
	}
	return p
}

// Environ is the variables as NAME=VALUE, unquoted. 1.4.3's shell function evaluates the name, so it gets only a plain
// word.
func (p Preactivation) Environ() []string {
	environ := []string{preactivate + "=1"}
	for _, f := range preactivateFlags {
		if value := p[f.flag]; value != "" {
			environ = append(environ, f.variable+"="+value)
		}
	}
	if name := p["name"]; name != "" && name[0] != '-' && text.IsMadeOf(name, "-_./:,@%+") {
		environ = append(environ, oldName+"="+name)
	}
	if p["no-prompt"] != "" {
		environ = append(environ, oldPrompt+"=0")
	}
	return environ
}

// Args is the command line. A value is joined to its flag because it may start with a dash.
func (p Preactivation) Args() []string {
	args := []string{"activate"}
	for _, f := range preactivateFlags {
		switch value := p[f.flag]; {
		case value == "":
		case f.isSwitch:
			args = append(args, "--"+f.flag)
		default:
			args = append(args, "--"+f.flag+"="+value)
		}
	}
	return args
}
