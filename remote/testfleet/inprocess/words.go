package inprocess

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// ErrNotPlain is wrapped by the error for a command line that a shell would
// interpret: only quoted and plain words are run.
var ErrNotPlain = errors.New("not a plain command line")

// A word consists of quoted parts, and of characters without a meaning to a POSIX
// shell.
var (
	quotedPart = regexp.MustCompile(`'[^']*'|\\[^\n]`)
	plainWord  = regexp.MustCompile(`^(?:` + quotedPart.String() + `|[-\w./:,@%+=])+`)
)

// Words splits a command line as a POSIX shell does, but refuses whatever a
// shell would interpret: variables, patterns, operators, substitutions. So a
// client that forgets to quote an argument gets an error. Single quotes and a
// backslash before one character are understood.
func Words(line string) ([]string, error) {
	var words []string
	for rest := strings.TrimLeft(line, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		word := plainWord.FindString(rest)
		rest = rest[len(word):]
		if word == "" || rest != "" && rest[0] != ' ' {
			return nil, fmt.Errorf("%w: %q: a shell would interpret %q", ErrNotPlain, line, rest)
		}
		words = append(words, quotedPart.ReplaceAllStringFunc(word, unquote))
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrNotPlain)
	}
	return words, nil
}

func unquote(part string) string {
	if part[0] == '\'' {
		return part[1 : len(part)-1]
	}
	return part[1:]
}
