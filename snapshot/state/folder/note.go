package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// Note is a JSON file in a folder that only root may write, or the caller on a simulated host. It is replaced as a
// whole, so that readers need no lock. Who changes what it read takes a lock first: see Hold.
type Note[T any] struct {
	Name    string
	Max     int64 // bytes
	Mode    uint32
	Durable bool // it is safe on the disk once it is written
	// Invalid is wrapped by errors about content that isn't a T, or that Check refuses.
	Invalid error
	Check   func(*T) error // nil for none
}

// Read returns the note in a folder. The error is fs.ErrNotExist for none, or wraps ErrUnsafe or Invalid.
func (n Note[T]) Read(dir string) (T, error) {
	data, err := ReadTrusted(dir, n.Name, n.Max)
	if err != nil {
		return *new(T), err
	}
	return n.Decode(data)
}

// ReadIn is Read in an open folder.
func (n Note[T]) ReadIn(d *Folder) (T, error) {
	data, err := d.readTrusted(n.Name, n.Max)
	if err != nil {
		return *new(T), err
	}
	return n.Decode(data)
}

// Decode decodes and checks the content of a note. Its error wraps Invalid.
func (n Note[T]) Decode(data []byte) (T, error) {
	var v T
	err := json.Unmarshal(data, &v)
	if err == nil && n.Check != nil {
		err = n.Check(&v)
	}
	switch {
	case err == nil:
		return v, nil
	case !errors.Is(err, n.Invalid):
		err = fmt.Errorf("%w: %w", n.Invalid, err)
	}
	return *new(T), fmt.Errorf("%s: %w", n.Name, err)
}

// Write replaces the note in a folder that exists.
func (n Note[T]) Write(dir string, v T) error {
	d, err := OpenTrusted(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return n.Put(d, v)
}

// Put is Write in an open folder.
func (n Note[T]) Put(d *Folder, v T) error { return d.PutJSON(n.Name, v, n.Mode, n.Durable) }

// CheckSchema is for the Check of a note.
func CheckSchema(got, want string) error {
	if got != want {
		return fmt.Errorf("its schema is %q, not %q", got, want)
	}
	return nil
}

// MakeTrusted is OpenTrusted, and makes the folder if it is missing.
func MakeTrusted(path string) (*Folder, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return OpenTrusted(path)
}

// MakePublic is MakeTrusted, and lets all users enter and list the folder, whatever the umask.
func MakePublic(path string) (*Folder, error) {
	d, err := MakeTrusted(path)
	if err != nil {
		return nil, err
	}
	if err := d.Chmod(0o755); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}
