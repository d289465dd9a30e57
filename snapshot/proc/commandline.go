package proc

import (
	"bytes"
	"strings"
	"unicode"

	"github.com/seed-3119e985/genv/snapshot"
)

// CommandLine is the command line, for people to read: printable, with spaces
// between the arguments, at most snapshot.MaxCommand bytes of it. The process
// may have rewritten it. Empty when it has none or does not show it.
func (h *Handle) CommandLine() string {
	data, err := readAt(h.dir, "cmdline", 2*snapshot.MaxCommand) // more would only be cut off
	if err != nil {
		return ""
	}
	data = bytes.ReplaceAll(bytes.TrimRight(data, "\x00"), []byte{0}, []byte{' '})
	return cut(strings.TrimSpace(Printable(data)), snapshot.MaxCommand)
}

// Printable is a text that a process chose, without what a terminal obeys.
func Printable(text []byte) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(string(text), "?"))
}
