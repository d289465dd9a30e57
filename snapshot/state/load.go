package state

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
)

// stateFile is one of the two files that 1.4.3 reads and writes too.
type stateFile int

const (
	envsFile stateFile = iota
	devicesFile
)

var stateFiles = [...]stateFile{envsFile, devicesFile}

// String is the file's name.
func (f stateFile) String() string { return [...]string{"envs.json", "devices.json"}[f] }

// contents are the bytes of both state files; nil for no file.
type contents [len(stateFiles)][]byte

func (c contents) same(o contents) bool {
	return same(c[envsFile], o[envsFile]) && same(c[devicesFile], o[devicesFile])
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func (f *Files) decode(file stateFile, data []byte) (err error) {
	if file == envsFile {
		f.Environments, err = decodeEnvironments(data)
	} else {
		f.Devices, err = decodeDevices(data)
	}
	return err
}

// encode returns nil if there is to be no devices.json.
func (f *Files) encode(file stateFile) ([]byte, error) {
	switch {
	case file == envsFile:
		return snapshot.EncodeEnvironments(f.Environments)
	case f.Devices == nil:
		return nil, nil
	}
	return snapshot.EncodeDevices(f.Devices)
}

// load reads and decodes the files; errs says which could not be read. The caller
// holds the lock, or knows what it does without.
func (t *transaction) load(ctx context.Context) {
	for _, file := range stateFiles {
		st, err := t.loadFile(ctx, file)
		t.errs[file] = ignore(err, fs.ErrNotExist)
		if file == envsFile {
			t.stamp = stampOf(&st)
		}
	}
}

func (t *transaction) loadError() error {
	if t.errs[envsFile] != nil {
		return t.errs[envsFile]
	}
	return t.errs[devicesFile]
}

// loadFile reads and decodes a file. 1.4.3 truncates a file and then writes it,
// which takes moments, and may give back the lock before it has finished. A file
// that can't be decoded after some attempts is corrupt.
func (t *transaction) loadFile(ctx context.Context, file stateFile) (unix.Stat_t, error) {
	const attempts, pause = 5, 10 * time.Millisecond
	var before []byte
	var cause error
	for attempt := 1; ; attempt++ {
		data, st, err := t.dir.read(file.String(), maxFileSize)
		if err != nil {
			return st, err
		}
		if attempt == 1 || !bytes.Equal(data, before) { // the same bytes would give the same error
			if cause = t.files.decode(file, data); cause == nil {
				t.onDisk[file] = data
				return st, nil
			}
			before = data
		}
		t.step("unreadable " + file.String())
		if attempt == attempts || !sleep(ctx, pause) {
			return st, t.keepCorrupt(file, data, &st, cause)
		}
	}
}

// sleep returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Limits of the state files, well below what a controller reads of a host: any user may
// write the files, and what is valid here but too much there would exempt the whole
// host from enforcement.
const (
	maxValues      = 1 << 18 // of each file, counted by the commas between them
	maxAttachments = 10_000  // of all devices
)

// decodeEnvironments reads envs.json.
func decodeEnvironments(data []byte) ([]snapshot.Environment, error) {
	if err := checkAmount(data); err != nil {
		return nil, err
	}
	environments, err := snapshot.DecodeEnvironments(data)
	for i := range environments {
		e := &environments[i]
		if err := checkNames(append([]string{string(e.EID), string(e.Username), e.Config.Name}, e.KernelIDs...)...); err != nil {
			return nil, err
		}
	}
	return environments, err
}

// decodeDevices reads devices.json.
func decodeDevices(data []byte) ([]snapshot.Device, error) {
	if err := checkAmount(data); err != nil {
		return nil, err
	}
	devices, err := snapshot.DecodeDevices(data)
	attachments := 0
	for i := range devices {
		for _, a := range devices[i].Attachments {
			if err := checkNames(string(a.EID)); err != nil {
				return nil, err
			}
		}
		if attachments += len(devices[i].Attachments); attachments > maxAttachments {
			return nil, fmt.Errorf("%w: more than %d attachments", snapshot.ErrInvalid, maxAttachments)
		}
	}
	return devices, err
}

func checkAmount(data []byte) error {
	if n := bytes.Count(data, []byte{','}); n > maxValues {
		return fmt.Errorf("%w: %d values, more than the limit of %d", snapshot.ErrInvalid, n, maxValues)
	}
	return nil
}

func checkNames(texts ...string) error {
	for _, text := range texts {
		if err := snapshot.CheckName("a text", text); err != nil {
			return err
		}
	}
	return nil
}
