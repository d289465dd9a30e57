package command

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// reply is what the script of a shell reads. breaks is COMP_WORDBREAKS of bash.
func (e *engine) reply(shell, line, breaks string) string {
	words := lex(line)
	if len(words) < 2 {
		return ""
	}
	last := &words[len(words)-1]
	var before []string
	for _, w := range words[1 : len(words)-1] {
		before = append(before, w.value)
	}
	a := e.complete(before, last.value)
	if shell == "zsh" {
		return a.zsh(line[last.start:last.end(a.skip)])
	}
	if a.do == program {
		return fmt.Sprintf("program %d\n", utf8.RuneCountInString(line[:words[a.program+1].start]))
	}
	return e.bash(&a, line, last, breaks)
}

// bash answers for a word. Readline replaces not the whole word, but what follows the last of the
// characters that break words, or an open quote; so candidates begin there.
func (e *engine) bash(a *answer, line string, last *word, breaks string) string {
	from, end := last.replacedFrom(line, breaks), last.end(a.skip)
	if a.do != offer {
		if from >= end {
			return [...]string{files: "files\n", folders: "folders\n"}[a.do]
		}
		// readline would take --policy= for a part of the path
		found := e.sources.paths(last.value, a.skip, a.do == files)
		a, end = &found, last.end(found.skip)
	} else if last.substituted { // the shell knows what the word is, and we don't
		return ""
	}
	var b strings.Builder
	b.WriteString(a.suffix + "\n")
	for _, c := range a.candidates {
		value, typed := c.value, ""
		if from <= end {
			typed = line[from:end]
		} else {
			value = value[last.count(from)-a.skip:]
		}
		if word, ok := quoted(value, last.quote); ok {
			b.WriteString(typed + word + "\n")
		}
	}
	return b.String()
}

// zsh answers for a word that begins with what stays of it.
func (a *answer) zsh(stays string) string {
	skip := utf8.RuneCountInString(stays)
	var b strings.Builder
	switch a.do {
	case files:
		fmt.Fprintf(&b, "files %d\n", skip)
	case folders:
		fmt.Fprintf(&b, "folders %d\n", skip)
	case program:
		fmt.Fprintf(&b, "program %d\n", a.program+1)
	case offer:
		fmt.Fprintf(&b, "words %d %s\n", skip, a.suffix)
	}
	escape := strings.NewReplacer(`\`, `\\`, ":", `\:`)
	for _, c := range a.candidates {
		b.WriteString(escape.Replace(c.value))
		if c.text != "" {
			b.WriteString(":" + text.OneLine(c.text))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// word is one of a shell's command line. The last one ends at the cursor, and may be empty or unfinished.
type word struct {
	value       string
	start       int   // of the word in the line
	positions   []int // after each byte of the value, in the line
	quote       byte  // that is open at the end of the last word; 0 if none is
	opened      int   // where: after that quote
	substituted bool  // it contains what the shell would replace, such as $(…)
}

// lex splits a line as bash and zsh do, as far as that needs no evaluation.
func lex(line string) (words []word) {
	var w *word // nil between words
	for i := 0; i < len(line); i++ {
		if (w == nil || w.quote == 0) && strings.IndexByte(" \t\n", line[i]) >= 0 {
			w = nil
			continue
		}
		if w == nil {
			words = append(words, word{start: i})
			w = &words[len(words)-1]
		}
		i += w.add(line, i)
	}
	if w == nil {
		words = append(words, word{start: len(line)})
	}
	return words
}

// add reads the character at a position, and says how many more it has read.
func (w *word) add(line string, i int) int {
	c := line[i]
	switch {
	case w.quote != 0 && c == w.quote:
		w.quote = 0
	case w.quote == 0 && (c == '"' || c == '\''):
		w.quote, w.opened = c, i+1
	case c == '\\' && w.quote != '\'' && i+1 < len(line) && (w.quote == 0 || strings.IndexByte("\\\"$`\n", line[i+1]) >= 0):
		if line[i+1] != '\n' { // which continues the line
			w.put(line, i+1, 1)
		}
		return 1
	case (c == '$' || c == '`') && w.quote != '\'':
		w.substituted = true
		length := substitution(line[i:])
		w.put(line, i, length)
		return length - 1
	default:
		w.put(line, i, 1)
	}
	return 0
}

func (w *word) put(line string, at, length int) {
	w.value += line[at : at+length]
	for i := range length {
		w.positions = append(w.positions, at+i+1)
	}
}

// substitution is how long what the shell replaces at the beginning of a text is, if it has
// parentheses, braces or backquotes around it.
func substitution(text string) int {
	inner := strings.TrimPrefix(text, "$")
	kind := -1
	if inner != "" {
		kind = strings.IndexByte("({`", inner[0])
	}
	if kind < 0 || kind == 2 && inner != text {
		return 1
	}
	depth := 0
	for i := range len(inner) {
		if inner[i] == ")}`"[kind] && depth > 0 {
			if depth--; depth == 0 {
				return len(text) - len(inner) + i + 1
			}
		} else if inner[i] == inner[0] {
			depth++
		}
	}
	return len(text)
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
func (w *word) replacedFrom(line, breaks string) int {
	if w.quote != 0 {
		return w.opened
	}
	from, before := w.start, word{}
	for i := w.start; i < len(line); i++ {
		plain, c := before.quote == 0 && line[i] != '\\', line[i]
		i += before.add(line, i)
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
