package strictyaml

import (
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	// MaxSize is the maximum size of a file in bytes.
	MaxSize = 4 << 20
	// maxErrors is how many errors are collected. Later ones tend to follow from
	// the first ones.
	maxErrors  = 20
	maxQuoted  = 61  // characters of the source line that an error repeats
	maxMessage = 401 // characters of a message, which may repeat text of the file
)

// Place is a position in a file; lines and columns count from 1.
type Place struct {
	File         string
	Line, Column int
}

// String is the place as editors and compilers write it.
func (p Place) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// ParseError is an error in a file.
type ParseError struct {
	Place   Place
	Message string // what is wrong, and how to correct it
	Source  string // the line of the file, without its indentation; may be empty
}

// Error is one line with the place, the message and the source line.
func (e *ParseError) Error() string {
	if e.Source == "" {
		return fmt.Sprintf("%s: %s", e.Place, e.Message)
	}
	return fmt.Sprintf("%s: %s (in %q)", e.Place, e.Message, e.Source)
}

// source is a file, and the errors that were found in it so far.
type source struct {
	file  string
	lines []string
	errs  []*ParseError
}

func (s *source) place(line, column int) Place { return Place{s.file, line, column} }

func (s *source) failf(at Place, format string, args ...any) {
	if len(s.errs) < maxErrors {
		message := text.Shorten(fmt.Sprintf(format, args...), maxMessage)
		s.errs = append(s.errs, &ParseError{Place: at, Message: message, Source: s.line(at.Line)})
	}
}

// line is a line of the file, shortened for an error.
func (s *source) line(number int) string {
	if number < 1 || number > len(s.lines) {
		return ""
	}
	return text.Shorten(strings.TrimSpace(s.lines[number-1]), maxQuoted)
}
