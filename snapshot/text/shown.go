package text

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxShown is how many characters of a foreign text are shown.
const maxShown = 32

// Shown is an id, a name or a command as it is shown to people. Users choose
// these texts, so one that isn't an ordinary word is put in quotes, cut to 32
// characters, and made printable: it can't look like words of genv's own. An
// ordinary word of at most 32 letters, digits and the marks ._:@/+- stays as it
// is, and with it the lines of 1.4.3.
//
// The quoted text has no quotation mark inside: it can't end early.
func Shown(text string) string {
	if ordinary(text) {
		return text
	}
	return Quoted(text, maxShown)
}

// Quoted is a foreign text in quotes, as of Shown, but cut to another length.
func Quoted(text string, most int) string {
	var b strings.Builder
	b.WriteByte('"')
	left := most
	for rest := text; rest != ""; left-- {
		r, size := utf8.DecodeRuneInString(rest)
		if left == 1 && len(rest) > size {
			b.WriteRune('…')
			break
		}
		b.WriteRune(harmless(r, size))
		rest = rest[size:]
	}
	b.WriteByte('"')
	return b.String()
}

// ShownCommand is a command line without the folders of its program: as it is if
// all its words are ordinary, and as Shown otherwise.
func ShownCommand(text string) string {
	program, _, _ := strings.Cut(text, " ")
	text = strings.TrimPrefix(text, program[:strings.LastIndexByte(program, '/')+1])
	words := strings.Fields(text)
	if len(text) <= maxShown && strings.Join(words, " ") == text && !slices.ContainsFunc(words, func(word string) bool { return !ordinary(word) }) {
		return text
	}
	return Shown(text)
}

// ordinary says whether a text can be shown as it is. "N/A" is how a line says
// that there is no environment.
func ordinary(text string) bool {
	if text == "" || len(text) > maxShown || text == "N/A" {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("._:@/+-", c) >= 0) {
			return false
		}
	}
	return true
}

// harmless is what stands for a character: quotation marks of all kinds become
// an apostrophe, and what is invisible, reorders text or is drawn over other
// characters becomes a question mark.
func harmless(r rune, size int) rune {
	switch {
	case r == utf8.RuneError && size == 1, !unicode.IsPrint(r), unicode.Is(unicode.M, r):
		return '?'
	case r == '"', r == '＂', r == '″', r == '‶', r == 'ʺ', r == '˝', r == '״', unicode.In(r, unicode.Quotation_Mark):
		return '\''
	}
	return r
}
