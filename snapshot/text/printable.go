package text

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
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

// Head is a writer that keeps the beginning of what is written to it, such as the output of a program.
type Head struct {
	Limit int  // in bytes
	Cut   bool // more was written

	kept strings.Builder
}

// Write implements io.Writer. It has no error, since a program would end because of it.
func (h *Head) Write(p []byte) (int, error) {
	room := min(len(p), h.Limit-h.kept.Len())
	h.Cut = h.Cut || room < len(p)
	h.kept.Write(p[:room])
	return len(p), nil
}

// String is what was kept.
func (h *Head) String() string { return h.kept.String() }

// Tail keeps the end of what a program writes. It is safe for concurrent use.
type Tail struct {
	Limit int // in bytes

	mu   sync.Mutex
	kept []byte
}

// Write implements io.Writer, without an error.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = append(t.kept[:0], t.kept[max(0, len(t.kept)-t.Limit):]...)
	return len(p), nil
}

// String is what was kept.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.kept)
}

// LastLine is the last line with text in it, printable and not too long: where a program says why it failed.
func LastLine(output string) string {
	output = strings.TrimSpace(output)
	return Printable(Cut(output[strings.LastIndexAny(output, "\r\n")+1:], 300))
}
