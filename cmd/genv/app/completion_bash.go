package app

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
	if len(l.words) < 2 {
		return ""
	}
	words := make([]string, 0, len(l.words))
	for _, w := range l.words[1 : len(l.words)-1] {
		words = append(words, w.value)
	}
	a := e.complete(words, last.value)
	from, end := last.replacedFrom(line, breaks), last.end(a.skip)
	switch {
	case a.do == files && from >= end:
		return "files\n"
	case a.do == folders && from >= end:
		return "folders\n"
	case a.do == files || a.do == folders: // readline would take --policy= for a part of the path
		a = e.sources.paths(last.value, a.skip, a.do == files)
		end = last.end(a.skip)
	case a.do == program:
		return fmt.Sprintf("program %d\n", utf8.RuneCountInString(line[:l.words[a.program+1].start]))
	case last.substituted: // the shell knows what the word is, and we don't
		return ""
	}
	var b strings.Builder
	b.WriteString([...]string{space: "words", none: "nospace", list: "words"}[a.suffix] + "\n")
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
