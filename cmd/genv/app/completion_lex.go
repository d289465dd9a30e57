package app

import (
	"slices"
	"strings"
)

// line is a shell's command line, as words.
type line struct{ words []word }

// word is one of them. The last one ends at the cursor, and may be empty or unfinished.
type word struct {
	value       string
	start       int   // of the word in the line
	positions   []int // after each byte of the value, in the line
	quote       byte  // that is open at the end of the last word; 0 if none is
	opened      int   // where: after that quote
	substituted bool  // it contains what the shell would replace, such as $(…)
}

// lex splits a line as bash and zsh do, as far as that needs no evaluation.
func lex(text string) line {
	var l line
	w := word{}
	inside := false // of a word
	end := func() {
		if inside {
			l.words = append(l.words, w)
		}
		inside = false
	}
	for i := 0; i < len(text); i++ {
		c := text[i]
		if w.quote == 0 && strings.IndexByte(" \t\n", c) >= 0 {
			end()
			continue
		}
		if !inside {
			w, inside = word{start: i}, true
		}
		i += w.add(text, i)
	}
	if !inside {
		w, inside = word{start: len(text)}, true
	}
	end()
	return l
}

// add reads the character at a position, and says how many more it has read.
func (w *word) add(text string, i int) int {
	c := text[i]
	switch {
	case w.quote != 0 && c == w.quote:
		w.quote = 0
	case w.quote == 0 && (c == '"' || c == '\''):
		w.quote, w.opened = c, i+1
	case c == '\\' && w.quote != '\'' && i+1 < len(text) && (w.quote == 0 || strings.IndexByte("\\\"$`\n", text[i+1]) >= 0):
		if text[i+1] != '\n' { // which continues the line
			w.put(text[i+1], i+2)
		}
		return 1
	case (c == '$' || c == '`') && w.quote != '\'':
		w.substituted = true
		length := substitution(text[i:])
		for k := i; k < i+length; k++ {
			w.put(text[k], k+1)
		}
		return length - 1
	default:
		w.put(c, i+1)
	}
	return 0
}

// substitution is how long what the shell replaces at the beginning of a text is, if it has
// parentheses, braces or backquotes around it.
func substitution(text string) int {
	opening, closing := byte('`'), byte('`')
	switch {
	case strings.HasPrefix(text, "$("):
		opening, closing = '(', ')'
	case strings.HasPrefix(text, "${"):
		opening, closing = '{', '}'
	case text[0] == '$':
		return 1
	}
	depth := 0
	for i := range len(text) {
		switch {
		case text[i] == closing && depth > 0:
			if depth--; depth == 0 {
				return i + 1
			}
		case text[i] == opening:
			depth++
		}
	}
	return len(text)
}

func (w *word) put(c byte, end int) {
	w.value += string([]byte{c})
	w.positions = append(w.positions, end)
}

// unquoted is a single word without its quotes; positions are as in word.
func unquoted(text string) (value string, positions []int) {
	w := word{}
	for i := 0; i < len(text); i++ {
		i += w.add(text, i)
	}
	return w.value, w.positions
}

// end is where a number of bytes of the value end in the line.
func (w *word) end(bytes int) int {
	switch {
	case bytes > 0:
		return w.positions[bytes-1]
	case w.quote != 0 && len(w.positions) == 0:
		return w.opened
	}
	return w.start
}

// count is how many bytes of the value end before a place in the line.
func (w *word) count(place int) int {
	n, _ := slices.BinarySearch(w.positions, place+1)
	return n
}

// replacedFrom is where readline begins to replace the last word: after an open quote, or
// after the last of the characters that break words.
func (w *word) replacedFrom(text, breaks string) int {
	if w.quote != 0 {
		return w.opened
	}
	from, before := w.start, word{}
	for i := w.start; i < len(text); i++ {
		plain, c := before.quote == 0 && text[i] != '\\', text[i]
		i += before.add(text, i)
		switch {
		case !plain || strings.IndexByte(breaks, c) < 0:
		case c == '@' || c == '$': // readline's special prefixes, which belong to the word
			from = i
		default:
			from = i + 1
		}
	}
	return from
}

// quoted writes a value so that bash reads it as it is, within an open quote or outside of
// any. It is false for one that can't be written so.
func quoted(value string, quote byte) (string, bool) {
	if quote == '"' && strings.HasSuffix(value, `"`) { // readline would take it for the closing one
		return "", false
	}
	var b strings.Builder
	for i := range len(value) {
		c := value[i]
		switch {
		case quote == '\'' && c == '\'', quote == '"' && c == '!':
			return "", false
		case quote == '"' && strings.IndexByte("\\\"$`", c) >= 0,
			quote == 0 && c < 0x80 && !ordinary(c) && !(c == '~' && i > 0):
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

// ordinary says whether a character means nothing to a shell.
func ordinary(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("@%+=:,./_-", c) >= 0
}
