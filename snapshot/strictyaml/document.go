package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
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

// Document is a parsed file and the errors that were found in it so far.
type Document struct {
	file  string
	lines []string
	root  *Node
	errs  []*ParseError
}

// Place is a position in a file; lines and columns count from 1.
type Place struct {
	File         string
	Line, Column int
}

// String is the place as editors and compilers write it.
func (p Place) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

func comparePlaces(a, b *ParseError) int {
	return cmp.Or(cmp.Compare(a.Place.Line, b.Place.Line), cmp.Compare(a.Place.Column, b.Place.Column))
}

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

// Root is the value of the whole document. It is never nil, but has no value if the
// document could not be parsed.
func (d *Document) Root() *Node { return d.root }

// Err is the error that comes first in the file, a *ParseError, or nil.
func (d *Document) Err() error {
	if len(d.errs) == 0 {
		return nil
	}
	return slices.MinFunc(d.errs, comparePlaces)
}

// All joins all collected errors in the order in which they were found; nil if there
// are none.
func (d *Document) All() error {
	errs := make([]error, len(d.errs))
	for i, e := range d.errs {
		errs[i] = e
	}
	return errors.Join(errs...)
}

func (d *Document) place(line, column int) Place { return Place{d.file, line, column} }

func (d *Document) failf(at Place, format string, args ...any) {
	if len(d.errs) < maxErrors {
		message := text.Shorten(fmt.Sprintf(format, args...), maxMessage)
		d.errs = append(d.errs, &ParseError{Place: at, Message: message, Source: d.source(at.Line)})
	}
}

// source is a line of the file, shortened for an error.
func (d *Document) source(line int) string {
	if line < 1 || line > len(d.lines) {
		return ""
	}
	return text.Shorten(strings.TrimSpace(d.lines[line-1]), maxQuoted)
}
