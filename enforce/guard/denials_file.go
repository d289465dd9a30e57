package guard

import (
	"crypto/rand"
	"encoding/json"
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

// WriteDenials replaces the denialsFile in root's run folder. Only root may read it.
func WriteDenials(dir string, l Denials) error {
	d, err := folder.OpenTrusted(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.PutJSON(denialsFile, l, 0o600, false)
}

// ReadDenials returns the list in the denialsFile; an empty one, with a new epoch, if there is none. The
// error wraps folder.ErrUnsafe if others than root could have written it, or
// snapshot.ErrInvalid.
func ReadDenials(dir string) (Denials, error) {
	data, err := folder.ReadTrusted(dir, denialsFile, maxDenialsFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return NewDenials(), nil
	case err != nil:
		return Denials{}, err
	}
	return decodeDenials(data)
}

func decodeDenials(data []byte) (Denials, error) {
	var l Denials
	if err := json.Unmarshal(data, &l); err != nil {
		return Denials{}, fmt.Errorf("%w: %s: %w", snapshot.ErrInvalid, denialsFile, err)
	}
	if l.Schema != denialsSchema || l.Epoch == "" || len(l.Denials) > MaxDenials {
		return Denials{}, fmt.Errorf("%w: %s has the denialsSchema %q", snapshot.ErrInvalid, denialsFile, l.Schema)
	}
	last := uint64(0)
	for i := range l.Denials {
		d := &l.Denials[i]
		if d.Seq <= last || d.Seq > l.LastSeq || d.ID == 0 || d.ID > d.Seq || snapshot.CheckText("name", d.Name) != nil {
			return Denials{}, fmt.Errorf("%w: %s: denial %d", snapshot.ErrInvalid, denialsFile, d.ID)
		}
		last = d.Seq
	}
	return l, nil
}
