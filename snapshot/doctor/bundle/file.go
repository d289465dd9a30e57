package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// File is a bundle that is being written.
type File struct {
	path string
	file *os.File
	gzip *gzip.Writer
	tar  *tar.Writer
	now  func() time.Time
}

// Create makes the file, which only its owner can read. A file that exists is an error: it
// is not overwritten.
func Create(path string, now func() time.Time) (*File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("%s exists already: remove it, or choose another name", path)
	}
	if err != nil {
		return nil, fmt.Errorf("write the bundle: %w", err)
	}
	f := &File{path: path, file: file, gzip: gzip.NewWriter(file), now: now}
	f.tar = tar.NewWriter(f.gzip)
	return f, nil
}

// AddText adds a text without its secrets.
func (f *File) AddText(name, text string) error { return f.add(name, []byte(Redact(text))) }

// AddJSON adds a value as JSON, without its secrets.
func (f *File) AddJSON(name string, value any) error {
	data, err := document(value)
	if err != nil {
		return fmt.Errorf("write %s into the bundle: %w", name, err)
	}
	return f.add(name, data)
}

// AddPolicy adds a policy file without its secrets, or why that isn't possible.
func (f *File) AddPolicy(name string, data []byte) error {
	cleaned, err := Policy(data)
	if err != nil {
		return f.AddText(name, "left out: "+err.Error()+"\n")
	}
	return f.add(name, cleaned)
}

func (f *File) add(name string, data []byte) error {
	err := f.tar.WriteHeader(&tar.Header{Name: "genv-bundle/" + name, Mode: 0o600, Size: int64(len(data)), ModTime: f.now()})
	if err == nil {
		_, err = f.tar.Write(data)
	}
	if err != nil {
		return fmt.Errorf("write %s into the bundle: %w", name, err)
	}
	return nil
}

// Close completes the file. If that fails, there is no file.
func (f *File) Close() error {
	err := errors.Join(f.tar.Close(), f.gzip.Close(), f.file.Sync(), f.file.Close())
	if err != nil {
		_ = os.Remove(f.path) // it would be cut short
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

// Discard removes a file that isn't complete.
func (f *File) Discard() {
	_ = f.file.Close()
	_ = os.Remove(f.path)
}
