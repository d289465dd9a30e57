package shell

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode"
)

// ErrUnquotable means that a shell can't represent a text or a name.
var ErrUnquotable = errors.New("cannot be given to a shell")

// Quote makes one word of a text for bash and zsh, with any options set. Only a
// NUL byte is refused, since no shell variable can hold one.
func Quote(text string) (string, error) {
	if strings.ContainsRune(text, 0) {
		return "", fmt.Errorf("%q %w: it contains a NUL byte", text, ErrUnquotable)
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'", nil
}

var identifier = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`) })

// checkName refuses what is not the name of a variable.
func checkName(text string) error {
	if !identifier().MatchString(text) {
		return fmt.Errorf("the variable name %q %w", text, ErrUnquotable)
	}
	return nil
}

// Prompt is the prefix of the prompt of an active shell. Shells expand a prompt each
// time that they show it (bash's promptvars, zsh's prompt_subst and percent escapes),
// where quoting doesn't help: whatever could start an expansion becomes a question mark.
func Prompt(environment string) string {
	return "(genv:" + strings.Map(harmless, environment) + ") "
}

func harmless(r rune) rune {
	if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" ._:/@+,=-", r) {
		return r
	}
	return '?'
}
