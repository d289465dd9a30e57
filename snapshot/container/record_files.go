package container

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

// recordsFolder is the folder of the records in root's run folder.
const recordsFolder = "containers"

// recordsLock is a file of the folder. Who writes or removes a record holds a lock on it, which
// only root can take.
const recordsLock = ".lock"

// recordsLockWithin is for how long that lock is waited for. It is held for a moment.
const recordsLockWithin = 5 * time.Second

// maxRecordFile bounds a record's file.
const maxRecordFile = 16 << 10

// RecordsDir is the folder of the records in root's run folder.
func RecordsDir(run string) string { return filepath.Join(run, recordsFolder) }

// recordNote is the file of a container's record.
func recordNote(id string) folder.Note[recordFile] {
	return folder.Note[recordFile]{
		Name: id + ".json", Max: maxRecordFile, Mode: 0o644, Invalid: ErrInvalidRecord,
		Check: func(f *recordFile) error {
			switch {
			case f.Schema != recordSchema:
				return fmt.Errorf("%w: schema %d", ErrInvalidRecord, f.Schema)
			case f.ID != id:
				return fmt.Errorf("%w: it is about another container", ErrInvalidRecord)
			}
			return f.check()
		},
	}
}

// WriteRecord writes or replaces the record of a container, for everybody to read. Only root
// calls it. Missing folders are created; an error, ErrInvalidRecord included, leaves the old
// record.
func WriteRecord(run string, r Record) error {
	if err := r.check(); err != nil {
		return err
	}
	parent, err := folder.MakeTrusted(run)
	if err != nil {
		return err
	}
	defer parent.Close()
	d, err := parent.PrivateSub(recordsFolder)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Hold(recordsLock, recordsLockWithin); err != nil {
		return err
	}
	return recordNote(r.ID).Put(d, recordFile{recordSchema, r})
}

// ReadRecord reads the record of a container. It trusts only a file that no other user than
// root (or the caller, on a simulated host) can have written. The error is fs.ErrNotExist
// if the hook has recorded nothing, as for a container that was started without it; with
// any other one it is unknown what it recorded.
func ReadRecord(run, id string) (Record, error) {
	if !IsID(id) {
		return Record{}, fmt.Errorf("%w: its id is not 64 hexadecimal digits", ErrInvalidRecord)
	}
	f, err := recordNote(id).Read(RecordsDir(run))
	return f.Record, err
}

// RemoveRecord removes the record of a container, which may be missing. Only root calls it.
func RemoveRecord(run, id string) error {
	return removeRecordIf(run, id, func() bool { return true })
}

// RemoveSameRecord removes the record of a container if it is still about the process of this
// one: a container that was started again meanwhile keeps its record. Only root calls it.
func RemoveSameRecord(run string, r Record) error {
	return removeRecordIf(run, r.ID, func() bool {
		now, err := ReadRecord(run, r.ID)
		return err == nil && now.PID == r.PID && now.Start == r.Start
	})
}

// removeRecordIf removes a record if that is wanted while no other process can write one.
func removeRecordIf(run, id string, wanted func() bool) error {
	if !IsID(id) {
		return fmt.Errorf("%w: its id is not 64 hexadecimal digits", ErrInvalidRecord)
	}
	d, err := folder.OpenTrusted(RecordsDir(run))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Hold(recordsLock, recordsLockWithin); err != nil {
		return err
	}
	if !wanted() {
		return nil
	}
	return d.Remove(recordNote(id).Name)
}

// ListRecords returns the ids of the containers that have a record, in the order of the ids.
func ListRecords(run string) ([]string, error) {
	entries, err := os.ReadDir(RecordsDir(run))
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
