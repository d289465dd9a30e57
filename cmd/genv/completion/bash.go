package completion

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// bash answers for the line up to the cursor, and COMP_WORDBREAKS. Readline replaces not
// the whole word, but what follows the last of those characters, or an open quote; so
// candidates begin there.
func (e *engine) bash(arguments []string) string {
	line, breaks := arguments[0], arguments[1]
	l := lex(line)
	last := &l.words[len(l.words)-1]
	if len(l.words) < 2 || last.substituted {
		return ""
	}
	words := make([]string, 0, len(l.words))
	for _, w := range l.words[1 : len(l.words)-1] {
		words = append(words, w.value)
	}
	a := e.complete(words, last.value)
	switch a.do {
	case files:
		return "files\n"
	case folders:
		return "folders\n"
	case program:
		return fmt.Sprintf("program %d\n", utf8.RuneCountInString(line[:l.words[a.program+1].start]))
	}
	kept := last.replacedFrom(line, breaks)
	var b strings.Builder
	b.WriteString([...]string{space: "words", none: "nospace", list: "words"}[a.suffix] + "\n")
	for _, c := range a.candidates {
		whole := last.value[:a.skip] + c.value
		if kept > len(whole) || whole[:kept] != last.value[:kept] {
			continue
		}
		if word, ok := quoted(whole[kept:], last.quote); ok {
			b.WriteString(word + "\n")
		}
	}
	return b.String()
}
