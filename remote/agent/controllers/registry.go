package controllers

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/rootfile"
)

// Options are what a Registry needs to know about its host.
type Options struct {
	Path   string // of the file: see Path
	Login  string // the account through which the controller came
	BootID string // of this boot; the list of another one is dropped
	Now    func() time.Time
	// SinceBoot is the time since the boot, with that in which the machine slept.
	SinceBoot func() (time.Duration, error)
}

// Registry is the list of the controllers that enforce this host, for one of them. It is
// safe for concurrent use.
type Registry struct {
	Options

	mu    sync.Mutex
	self  *Controller // nil before the first contact
	known list        // of the file that had these
	file  fileID
}

// NewRegistry returns a Registry. Nothing is read or written yet.
func NewRegistry(options Options) *Registry { return &Registry{Options: options} }

// Path is the file of the list: in root's run folder.
func Path(getenv func(string) string) string {
	return filepath.Join(rootfile.RunDir(getenv), rootfile.Name(getenv, "controllers"))
}

// Contact notes that a controller enforces this host, and returns the others. fenced says that
// the host let it act and refuses those that it let act before: they are listed no more. With
// an error, there may be others than these.
func (r *Registry) Contact(self Controller, fenced bool) ([]Seen, error) {
	if err := self.Check(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.self = &self
	return r.note(entry{Controller: self, Login: r.Login, Serves: os.Getpid(), Fenced: fenced})
}

// Note notes a controller of which only the account is known, since it came with a command:
// genv 1.4.3 sends a report so.
func (r *Registry) Note() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	account := cmp.Or(r.Login, "root")
	_, err := r.note(entry{Controller: Controller{ID: commandsID + sum(account), Account: account}, Login: r.Login, Brief: true})
	return err
}

// commandsID begins the id of a controller that only gives commands.
const commandsID = "commands:"

func sum(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:8])
}

// note adds an entry, and returns the others. r.mu is held.
func (r *Registry) note(e entry) ([]Seen, error) {
	now, err := r.SinceBoot()
	if err != nil {
		return nil, err
	}
	if id := idOf(r.Path); id == (fileID{}) || id != r.file {
		r.known, r.file = nil, fileID{} // another process wrote it
	}
	if next, stale := r.known.with(e, now); stale || r.file == (fileID{}) {
		if err = r.update(func(l list) list { next, _ = l.with(e, now); return next }); err != nil {
			err = fmt.Errorf("which controllers enforce this host is not known: %w", err)
		}
	}
	return r.known.others(&e.Controller, now, r.Now()), err
}

// Leave removes the controller of the last contact: its conversation is over.
func (r *Registry) Leave() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.self == nil {
		return nil
	}
	return r.update(func(l list) list { return l.without(r.self, os.Getpid()) })
}

// update changes the list in the file. r.known is what it had and, unless it can't be
// written, has now.
func (r *Registry) update(change func(list) list) error {
	dir, err := rootfile.OpenDir(filepath.Dir(r.Path))
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(r.Path)
	lock, err := dir.Lock(name+".lock", lockWithin)
	if err != nil {
		return err
	}
	defer lock.Close()
	if r.known, err = r.read(dir, name); err != nil {
		return err
	}
	next := change(r.known)
	if err := dir.PutJSON(name, file{schema, r.BootID, next}, 0o600, false); err != nil {
		r.known = next
		return err
	}
	r.known, r.file = next, idOf(r.Path)
	return nil
}

// file is the file.
type file struct {
	Schema      string `json:"schema"`
	BootID      string `json:"boot_id"`
	Controllers list   `json:"controllers"`
}

const (
	schema   = "genv.host.controllers/1"
	maxBytes = 64 << 10
)

// read reads the list. One of another boot is over, and one that is damaged is replaced:
// who still enforces the host is in contact soon.
func (r *Registry) read(dir *folder.Folder, name string) (list, error) {
	data, _, err := dir.Read(name, maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var f file
	if json.Unmarshal(data, &f) != nil || f.Schema != schema || f.BootID != r.BootID {
		return nil, nil
	}
	return f.Controllers, nil
}

// fileID changes when the file is replaced; zero for no file.
type fileID struct {
	inode    uint64
	modified unix.Timespec
}

func idOf(path string) fileID {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fileID{}
	}
	return fileID{st.Ino, st.Mtim}
}

// lockWithin is how long another genv may hold the lock: it only writes a small file.
const lockWithin = time.Second
