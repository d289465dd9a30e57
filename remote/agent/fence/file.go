package fence

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// File is the note of a host. It is safe for concurrent use, by other processes too.
type File struct {
	Path string // see Path
	Now  func() time.Time
}

// Path is the file of the note: in root's folder. Its name depends on the state folder,
// since simulated hosts on one machine are enforced apart.
func Path(getenv func(string) string) string {
	name := "controller.json"
	if clean := filepath.Clean(disk.Dir(getenv)); clean != disk.DefaultDir {
		sum := sha256.Sum256([]byte(clean))
		name = "controller." + hex.EncodeToString(sum[:8]) + ".json"
	}
	return filepath.Join(disk.RootDir(getenv), name)
}

const (
	schema   = "genv.host.controller/1"
	maxBytes = 16 << 10
	// lockWithin is how long another genv may hold the lock: it only writes a small file.
	lockWithin = 5 * time.Second
)

// stored is the file.
type stored struct {
	Schema string `json:"schema"`
	Note
}

// Admit decides on a claim, which is nil for a controller without one. If it returns nil,
// the claim is noted on the disk, and what the controller sent may be done. Otherwise nothing
// may be done: the error is a *RefusedError, or says why the note can't be read or written.
func (f File) Admit(c *Claim) error {
	if c != nil {
		if err := c.Check(); err != nil {
			return err
		}
	}
	err := f.update(c != nil, func(n *Note) (*Note, error) { return n.Admit(c, f.Now()) })
	var refused *RefusedError
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("which controller may act on this host is not known, so nothing is done: %w", err)
}

// Release notes that the controller with this claim has ended, if it is the one that is noted.
func (f File) Release(c *Claim) error {
	return f.update(false, func(n *Note) (*Note, error) { return n.Release(c), nil })
}

// update changes the note under the lock. The lock is only taken for a change, so that a
// folder that became read-only, or a genv that hangs, doesn't keep a host from what needs
// none. Without create, a folder that is missing stays so.
func (f File) update(create bool, change func(*Note) (*Note, error)) error {
	dir, err := f.open(create)
	if errors.Is(err, fs.ErrNotExist) && !create {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(f.Path)
	note, err := read(dir, name)
	if err != nil {
		return err
	}
	if next, err := change(note); err != nil || next == note {
		return err
	}
	lock, err := dir.Lock(name+".lock", lockWithin)
	if err != nil {
		return err
	}
	defer lock.Close()
	if note, err = read(dir, name); err != nil { // another genv may have changed it
		return err
	}
	next, err := change(note)
	if err != nil || next == note {
		return err
	}
	return dir.PutJSON(name, stored{schema, *next}, 0o600, true)
}

// open opens root's folder, which only root may write.
func (f File) open(create bool) (*folder.Folder, error) {
	dir := filepath.Dir(f.Path)
	if create {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	opened, err := folder.OpenExisting(dir)
	if err != nil {
		return nil, err
	}
	if err := opened.CheckPrivate(); err != nil {
		opened.Close()
		return nil, err
	}
	return opened, nil
}

// read reads the note; nil if there is none. One that is damaged is an error: it may have
// been that of a higher epoch.
func read(dir *folder.Folder, name string) (*Note, error) {
	data, _, err := dir.Read(name, maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parse(data, dir.Join(name))
}

func parse(data []byte, path string) (*Note, error) {
	var s stored
	err := json.Unmarshal(data, &s)
	if err == nil && s.Schema != schema {
		err = fmt.Errorf("its schema is %q", s.Schema)
	}
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w: remove it if only one controller runs", path, err)
	}
	return &s.Note, nil
}
