package shell

import (
	"cmp"
	"fmt"
	"strings"
)

// Edit is what a command does to the shell that called it. Rendered, it only
// calls functions that Init defines. The zero Change does nothing.
type Edit struct {
	Set     []Variable // exported variables, in order
	Unset   []string   // variables that this environment doesn't have
	Restore []string   // variables that get back what they were
	Shims   ShimsChange
	Prompt  PromptChange
	Prefix  string // what Prompt writes, from the function Prompt
}

// Variable is an exported variable.
type Variable struct{ Name, Value string }

// ShimsChange is what happens to the folder of the shims in PATH.
type ShimsChange int

// The changes of PATH.
const (
	ShimsStay   ShimsChange = iota
	ShimsAdd                // as the first entry
	ShimsRemove             // PATH gets back what it was
)

// PromptChange is what happens to PS1.
type PromptChange int

// The changes of PS1.
const (
	PromptStay    PromptChange = iota
	PromptAdd                  // add the prefix
	PromptReplace              // replace the prefix, if there is one: not after --no-prompt
	PromptRemove
)

// Render writes the change as code for an initialised shell. Every value is
// quoted; a name or a value that no shell can hold is ErrUnquotable.
func (c Edit) Render() (string, error) {
	var code script
	for _, v := range c.Set {
		code.call("__genv_set", v.Name, v.Value)
	}
	for _, unset := range c.Unset {
		code.call("__genv_unset", unset)
	}
	switch c.Shims {
	case ShimsStay:
	case ShimsAdd:
		code.call("__genv_path_add", "PATH")
	case ShimsRemove:
		code.call("__genv_path_remove", "PATH")
	}
	for _, restored := range c.Restore {
		code.call("__genv_restore", restored)
	}
	switch c.Prompt {
	case PromptStay:
	case PromptAdd:
		code.call("__genv_prompt", "PS1", c.Prefix)
	case PromptReplace:
		code.call("__genv_prompt_replace", "PS1", c.Prefix)
	case PromptRemove:
		code.call("__genv_prompt", "PS1", "")
	}
	if code.err != nil {
		return "", code.err
	}
	return code.text.String(), nil
}

// script gathers lines, and keeps its first error.
type script struct {
	text strings.Builder
	err  error
}

// call adds a line that calls a function about a variable.
func (s *script) call(function, variable string, values ...string) {
	err := checkName(variable)
	line := function + " " + variable
	for _, value := range values {
		quoted, quoteErr := Quote(value)
		err = cmp.Or(err, quoteErr)
		line += " " + quoted
	}
	if err != nil && s.err == nil {
		s.err = fmt.Errorf("code for the shell: %w", err)
	}
	s.text.WriteString(line + "\n")
}
