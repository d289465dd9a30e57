package shell

import "strings"

// Preactivation has a shell activate itself when it is initialised: `genv remote activate` opens a shell on a host with
// these variables in its environment. They are unset before the activation, so that shells that are started from the
// new one don't activate again.
//
//	GENV_PREACTIVATE=1                 activate at all
//	GENV_PREACTIVATE_EID               --id
//	GENV_PREACTIVATE_NAME              --name
//	GENV_PREACTIVATE_GPUS              --gpus
//	GENV_PREACTIVATE_GPU_MEMORY        --gpu-memory
//	GENV_PREACTIVATE_NO_PROMPT=1       --no-prompt
//	GENV_PREACTIVATE_NO_ATTACH=1       --no-attach
//	GENV_PREACTIVATE_OVER_SUBSCRIBE=1  --over-subscribe
//
// genv 1.4.3 has GENV_PREACTIVATE and GENV_PREACTIVATE_GPUS too, and these:
//
//	GENV_PREACTIVATE_ENVIRONMENT_NAME  --name
//	GENV_PREACTIVATE_PROMPT=0          --no-prompt
//
// It is the flags with their values, by their names without dashes; a switch that is given has the value 1.
type Preactivation map[string]string

const preactivate = "GENV_PREACTIVATE"

const (
	oldName   = preactivate + "_ENVIRONMENT_NAME"
	oldPrompt = preactivate + "_PROMPT"
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

// PreactivationFrom reads the variables; nil when the shell isn't to activate itself, or is active already.
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

// Environ is the variables as NAME=VALUE, for env(1) or a process. The values are not quoted. The shell function of
// 1.4.3 evaluates the name that it is given, so it gets none that is more than a plain word.
func (p Preactivation) Environ() []string {
	environ := []string{preactivate + "=1"}
	for _, f := range preactivateFlags {
		if value := p[f.flag]; value != "" {
			environ = append(environ, f.variable+"="+value)
		}
	}
	if name := p["name"]; plainWord(name) {
		environ = append(environ, oldName+"="+name)
	}
	if p["no-prompt"] != "" {
		environ = append(environ, oldPrompt+"=0")
	}
	return environ
}

// Args is the same as a command line of genv. A value is joined to its flag, since it may start with a dash.
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

const plainCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:,@%+"

// plainWord reports whether a shell that evaluates the word finds nothing but the word.
func plainWord(word string) bool {
	return word != "" && word[0] != '-' && strings.Trim(word, plainCharacters) == ""
}
