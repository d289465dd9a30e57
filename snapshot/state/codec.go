package state

import (
	"bytes"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// File is one of the two state files, which genv 1.4.3 reads and writes too.
type File int

const (
	Envs File = iota
	Devices
)

// String is the file's name.
func (f File) String() string { return [...]string{"envs.json", "devices.json"}[f] }

// Contents are the bytes of both state files; nil for no file.
type Contents [2][]byte

// Equal says whether both files are the same.
func (c Contents) Equal(o Contents) bool {
	return Same(c[Envs], o[Envs]) && Same(c[Devices], o[Devices])
}

// Same says whether two contents of a file are the same; no file is not an empty one.
func Same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// Limits of the state files, well below what a controller reads of a host: any user may
// write the files, and what is valid here but too much there would exempt the whole
// host from enforcement.
const (
	maxValues      = 1 << 18 // of each file, counted by the commas between them
	maxOlderValues = 1 << 14 // of a file of an older version: a conversion takes kilobytes for each
	maxAttachments = 10_000  // of all devices
)

// Decode reads the content of a state file, also of one that an older version than 1.4.3 has
// written. Its errors wrap snapshot.ErrInvalid.
func (f *Files) Decode(file File, data []byte) (err error) {
	if n := bytes.Count(data, []byte{','}); n > maxValues {
		return fmt.Errorf("%w: %d values, more than the limit of %d", snapshot.ErrInvalid, n, maxValues)
	}
	err = f.decode(file, data)
	if err == nil {
		return nil
	}
	if bytes.Count(data, []byte{','}) > maxOlderValues {
		return err
	}
	if older, ok := converted(file, data); ok {
		return f.decode(file, older)
	}
	return err
}

func (f *Files) decode(file File, data []byte) (err error) {
	if file == Envs {
		f.Environments, err = decodeEnvironments(data)
	} else {
		f.Devices, err = decodeDevices(data)
	}
	return err
}

// Encode writes the content of a state file; nil if there is to be no devices.json.
func (f *Files) Encode(file File) ([]byte, error) {
	switch {
	case file == Envs:
		return snapshot.EncodeEnvironments(f.Environments)
	case f.Devices == nil:
		return nil, nil
	}
	return snapshot.EncodeDevices(f.Devices)
}

func decodeEnvironments(data []byte) ([]snapshot.Environment, error) {
	environments, err := snapshot.DecodeEnvironments(data)
	for i := range environments {
		e := &environments[i]
		if err := checkNames(append([]string{string(e.EID), string(e.Username), e.Config.Name}, e.KernelIDs...)...); err != nil {
			return nil, err
		}
	}
	return environments, err
}

func decodeDevices(data []byte) ([]snapshot.Device, error) {
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

func checkNames(texts ...string) error {
	for _, text := range texts {
		if err := snapshot.CheckName("a text", text); err != nil {
			return err
		}
	}
	return nil
}
