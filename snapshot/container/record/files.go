package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// folderName is the folder of the records in root's run folder.
const folderName = "containers"

// lockName is a file of the folder. Who writes or removes a record holds a lock on it, which
// only root can take.
const lockName = ".lock"

// lockWithin is for how long that lock is waited for. It is held for a moment.
const lockWithin = 5 * time.Second

// maxBytes bounds a record's file.
const maxBytes = 16 << 10

// Dir is the folder of the records in root's run folder.
func Dir(run string) string { return filepath.Join(run, folderName) }

func fileName(id string) string { return id + ".json" }

// Write writes or replaces the record of a container, for everybody to read. Only root
// calls it. Missing folders are created; an error, ErrInvalid included, leaves the old
// record.
func Write(run string, r Record) error {
	if err := r.check(); err != nil {
		return err
	}
	if err := os.MkdirAll(run, 0o755); err != nil {
		return err
	}
	parent, err := folder.OpenTrusted(run)
	if err != nil {
		return err
	}
	defer parent.Close()
	d, err := parent.PrivateSub(folderName)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.CheckPrivate(); err != nil {
		return err
	}
	lock, err := d.Lock(lockName, lockWithin)
	if err != nil {
		return err
	}
	defer lock.Close()
	return d.PutJSON(fileName(r.ID), file{schema, r}, 0o644, false)
}

// Read reads the record of a container. It trusts only a file that no other user than
// root (or the caller, on a simulated host) can have written. The error is fs.ErrNotExist
// if the hook has recorded nothing, as for a container that was started without it; with
// any other one it is unknown what it recorded.
func Read(run, id string) (Record, error) {
	if !IsID(id) {
		return Record{}, fmt.Errorf("%w: its id is not 64 hexadecimal digits", ErrInvalid)
	}
	data, err := folder.ReadTrusted(Dir(run), fileName(id), maxBytes)
	if err != nil {
		return Record{}, err
	}
	r, err := Decode(data)
	if err == nil && r.ID != id {
		err = fmt.Errorf("%w: it is about another container", ErrInvalid)
	}
	return r, err
}

// Remove removes the record of a container, which may be missing. Only root calls it.
func Remove(run, id string) error {
	return removeIf(run, id, func() bool { return true })
}

// RemoveSame removes the record of a container if it is still about the process of this
// one: a container that was started again meanwhile keeps its record. Only root calls it.
func RemoveSame(run string, r Record) error {
	return removeIf(run, r.ID, func() bool {
		now, err := Read(run, r.ID)
		return err == nil && now.PID == r.PID && now.Start == r.Start
	})
}

// removeIf removes a record if that is wanted while no other process can write one.
func removeIf(run, id string, wanted func() bool) error {
	if !IsID(id) {
		return fmt.Errorf("%w: its id is not 64 hexadecimal digits", ErrInvalid)
	}
	d, err := folder.OpenTrusted(Dir(run))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	lock, err := d.Lock(lockName, lockWithin)
	if err != nil {
		return err
	}
	defer lock.Close()
	if !wanted() {
		return nil
	}
	return d.Remove(fileName(id))
}

// List returns the ids of the containers that have a record, in the order of the ids.
func List(run string) ([]string, error) {
	entries, err := os.ReadDir(Dir(run))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		if id, found := strings.CutSuffix(e.Name(), ".json"); found && IsID(id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}
