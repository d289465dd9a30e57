package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is text that someone else chose, on one line: what could move a
// cursor, hide or reorder text is escaped as in Go, "\n" for a newline and "\xff"
// for a byte that is not UTF-8.
func Printable(s string) string { return escape(s, isPrint) }

// PrintableLines is Printable, but newlines stay.
func PrintableLines(s string) string {
	return escape(s, func(r rune) bool { return r == '\n' || isPrint(r) })
}

// OneLine is Printable with single spaces for all white space.
func OneLine(s string) string { return Printable(strings.Join(strings.Fields(s), " ")) }

// Masked is Printable with a question mark for each character that it would escape.
func Masked(s string) string {
	return strings.Map(func(r rune) rune {
		if isPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

func isPrint(r rune) bool { return unicode.IsPrint(r) }

// escape escapes what is not UTF-8, and the characters that keep refuses.
func escape(s string, keep func(rune) bool) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !keep(r) }) < 0 {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case keep(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		}
		s = s[size:]
	}
	return b.String()
}

// Cut is the beginning of a text, at most n bytes of it and only whole characters.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Shorten is a text of at most n characters, the last of which is … when it was cut.
func Shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
