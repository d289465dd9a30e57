package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable is a foreign text on one line: characters that could move a cursor, or hide or reorder text, are escaped as
// in Go, with "\n" for a newline and "\xff" for a byte that is not UTF-8.
func Printable(s string) string { return escape(s, unicode.IsPrint) }

// PrintableLines is Printable, but keeps newlines.
func PrintableLines(s string) string {
	return escape(s, func(r rune) bool { return r == '\n' || unicode.IsPrint(r) })
}

// OneLine is Printable with a single space for each run of white space.
func OneLine(s string) string { return Printable(strings.Join(strings.Fields(s), " ")) }

// Masked is Printable with a question mark for each character that it would escape.
func Masked(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}

// escape escapes all bytes that are not UTF-8, and all characters that keep refuses.
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

// Cut is the beginning of a text, at most n bytes, with whole characters.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// Shorten cuts a text to at most n characters; the last one is … if it was cut.
func Shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}
