package strictyaml

import (
	"cmp"
	"errors"
	"slices"
)

// Document is a parsed file and the errors that were found in it so far.
type Document struct {
	*source
	root *Node
}

// Root is the value of the whole document. It is never nil, but has no value if the
// document could not be parsed.
func (d *Document) Root() *Node { return d.root }

// Err is the error that comes first in the file, a *ParseError, or nil.
func (d *Document) Err() error {
	if len(d.errs) == 0 {
		return nil
	}
	return slices.MinFunc(d.errs, func(a, b *ParseError) int {
		return cmp.Or(cmp.Compare(a.Place.Line, b.Place.Line), cmp.Compare(a.Place.Column, b.Place.Column))
	})
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
