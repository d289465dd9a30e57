package guard

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

const (
	denialsFile    = "guard-denials.json"
	denialsSchema  = "genv.guard-denials/1"
	maxDenialsFile = 4 << 20 // bytes
)

// NewDenials is an empty list with an epoch of its own.
func NewDenials() Denials {
	return Denials{Schema: denialsSchema, Epoch: rand.Text(), Denials: []Denial{}}
}

var denialsNote = folder.Note[Denials]{
	Name: denialsFile, Max: maxDenialsFile, Mode: 0o600, Invalid: snapshot.ErrInvalid, Check: (*Denials).check,
}

// WriteDenials replaces the denialsFile in root's run folder. Only root may read it.
func WriteDenials(dir string, l Denials) error { return denialsNote.Write(dir, l) }

// ReadDenials returns the list in the denialsFile; an empty one, with a new epoch, if there is none. The
// error wraps folder.ErrUnsafe if others than root could have written it, or
// snapshot.ErrInvalid.
func ReadDenials(dir string) (Denials, error) {
	l, err := denialsNote.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return NewDenials(), nil
	}
	return l, err
}

func (l *Denials) check() error {
	if l.Epoch == "" || len(l.Denials) > MaxDenials {
		return errors.New("it has no epoch, or too many denials")
	}
	last := uint64(0)
	for i := range l.Denials {
		d := &l.Denials[i]
		if d.Seq <= last || d.Seq > l.LastSeq || d.ID == 0 || d.ID > d.Seq || snapshot.CheckText("name", d.Name) != nil {
			return fmt.Errorf("denial %d", d.ID)
		}
		last = d.Seq
	}
	return folder.CheckSchema(l.Schema, denialsSchema)
}
