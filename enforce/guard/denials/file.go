package denials

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
	file    = "guard-denials.json"
	schema  = "genv.guard-denials/1"
	maxFile = 4 << 20 // bytes
)

// New is an empty list with an epoch of its own.
func New() List { return List{Schema: schema, Epoch: rand.Text(), Denials: []Denial{}} }

// Write replaces the file in root's run folder. Only root may read it.
func Write(dir string, l List) error {
	d, err := folder.OpenTrusted(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.PutJSON(file, l, 0o600, false)
}

// Read returns the list in the file; an empty one, with a new epoch, if there is none. The
// error wraps folder.ErrUnsafe if others than root could have written it, or
// snapshot.ErrInvalid.
func Read(dir string) (List, error) {
	data, err := folder.ReadTrusted(dir, file, maxFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return New(), nil
	case err != nil:
		return List{}, err
	}
	return decode(data)
}

func decode(data []byte) (List, error) {
	var l List
	if err := json.Unmarshal(data, &l); err != nil {
		return List{}, fmt.Errorf("%w: %s: %w", snapshot.ErrInvalid, file, err)
	}
	if l.Schema != schema || l.Epoch == "" || len(l.Denials) > MaxCount {
		return List{}, fmt.Errorf("%w: %s has the schema %q", snapshot.ErrInvalid, file, l.Schema)
	}
	last := uint64(0)
	for i := range l.Denials {
		d := &l.Denials[i]
		if d.Seq <= last || d.Seq > l.LastSeq || d.ID == 0 || d.ID > d.Seq || snapshot.CheckText("name", d.Name) != nil {
			return List{}, fmt.Errorf("%w: %s: denial %d", snapshot.ErrInvalid, file, d.ID)
		}
		last = d.Seq
	}
	return l, nil
}
