package strictyaml

import (
	"errors"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

const (
	// MaxSize is how many bytes a file may have.
	MaxSize = 4 << 20
	// maxErrors is after how many errors no more are gathered: the rest tend
	// to follow from the first ones.
	maxErrors  = 20
	maxQuoted  = 61  // characters of the offending line that an error repeats
	maxMessage = 401 // characters of a message, which may repeat what was written
)

// Document is a parsed file and the errors that were found in it so far.
type Document struct {
	file  string
	lines []string
	root  *Node
	errs  []*Error
}

// Place is where something stands in a file; lines and columns count from 1.
type Place struct {
	File         string
	Line, Column int
}

// String is the place as editors and compilers write it.
func (p Place) String() string { return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column) }

// Error is something wrong in a file.
type Error struct {
	Place   Place
	Message string // what is wrong, and what was meant or can be done
	Source  string // the line of the file, without its indentation
}

// Error is one line: the place, what is wrong, and the line that it is in.
func (e *Error) Error() string {
	if e.Source == "" {
		return fmt.Sprintf("%s: %s", e.Place, e.Message)
	}
	return fmt.Sprintf("%s: %s (in %q)", e.Place, e.Message, e.Source)
}

// Root is the value of the whole document. It is never nil; for a document
// that could not be parsed it has no value.
func (d *Document) Root() *Node { return d.root }

// Err is the first error by place, an *Error, or nil.
func (d *Document) Err() error {
	if len(d.errs) == 0 {
		return nil
	}
	first := d.errs[0]
	for _, e := range d.errs[1:] {
		if e.Place.Line < first.Place.Line || e.Place.Line == first.Place.Line && e.Place.Column < first.Place.Column {
			first = e
		}
	}
	return first
}

// All is every error that was gathered, joined, in the order they were found;
// nil if there are none.
func (d *Document) All() error {
	errs := make([]error, len(d.errs))
	for i, e := range d.errs {
		errs[i] = e
	}
	return errors.Join(errs...)
}

func (d *Document) fail(line, column int, message string) {
	if len(d.errs) >= maxErrors {
		return
	}
	d.errs = append(d.errs, &Error{
		Place:   Place{File: d.file, Line: line, Column: column},
		Message: text.Shorten(message, maxMessage),
		Source:  d.source(line),
	})
}

// source is a line of the file, cut to what fits into a message.
func (d *Document) source(line int) string {
	if line < 1 || line > len(d.lines) {
		return ""
	}
	return text.Shorten(strings.TrimSpace(d.lines[line-1]), maxQuoted)
}
