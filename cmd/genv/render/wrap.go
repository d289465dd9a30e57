package render

import (
	"strings"
	"unicode/utf8"
)

// minimumRoom is the least room for a text in which it is wrapped.
const minimumRoom = 20

// Wrap breaks a text between words into lines that fit into a width. The first line begins
// at an indent already, the others get one. A width of 0, as of a pipe, is not known: the text
// stays one line.
func Wrap(text string, indent, width int) string {
	room := width - indent
	if width == 0 || room < minimumRoom {
		return text
	}
	var b strings.Builder
	used := 0
	for i, word := range strings.Split(text, " ") {
		length := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case used+1+length > room:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			used = 0
		default:
			b.WriteByte(' ')
			used++
		}
		b.WriteString(word)
		used += length
	}
	return b.String()
}
