package inprocess

import (
	"errors"
	"fmt"
	"strings"
)

// ErrNotPlain is wrapped by the error for a command line that a shell would
// interpret: only quoted and plain words are run.
var ErrNotPlain = errors.New("not a plain command line")

// plainMarks are the characters besides letters and digits that mean nothing to
// a POSIX shell, anywhere in a word.
const plainMarks = "-_./:,@%+="

// Words splits a command line as a POSIX shell does, but refuses whatever a
// shell would interpret: variables, patterns, operators, substitutions. So a
// client that forgets to quote an argument is found out, not obeyed. Single
// quotes and a backslash before one character are understood.
func Words(line string) ([]string, error) {
	var words []string
	for rest := strings.TrimLeft(line, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		word, after, err := nextWord(rest)
		if err != nil {
			return nil, fmt.Errorf("%w: %q: %w", ErrNotPlain, line, err)
		}
		words, rest = append(words, word), after
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrNotPlain)
	}
	return words, nil
}

// nextWord reads up to the next blank that is not quoted.
func nextWord(s string) (word, rest string, err error) {
	var b strings.Builder
	for s != "" && s[0] != ' ' {
		switch c := s[0]; {
		case c == '\'':
			quoted, after, closed := strings.Cut(s[1:], "'")
			if !closed {
				return "", "", errors.New("a quote is not closed")
			}
			b.WriteString(quoted)
			s = after
		case c == '\\' && len(s) > 1 && s[1] != '\n':
			b.WriteByte(s[1])
			s = s[2:]
		case isPlain(c):
			b.WriteByte(c)
			s = s[1:]
		default:
			return "", "", fmt.Errorf("a shell would interpret %q", c)
		}
	}
	return b.String(), s, nil
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(plainMarks, c) >= 0
}
