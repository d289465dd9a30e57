// Package fence keeps a controller that was replaced from acting on a host.
//
// A controller in a loop sends a Claim: an epoch, and the source that counts epochs. Root's
// genv on the host notes the highest epoch it has seen, on the disk, before anything is done,
// and refuses lower ones. So a controller that was frozen, or cut off, and doesn't know yet
// that another one took its place, does no harm.
//
//	file := &fence.File{Path: fence.Path(os.Getenv), Now: time.Now}
//	err := file.Admit(claim) // *RefusedError: another controller acts on this host
//
// Epochs of two sources can't be compared: a host stays with the source that it knows, until
// an administrator says --take-over. What a controller claims is believed, since who gets
// here is root on the host.
package fence

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// File is the note of a host. It is safe for concurrent use, by other processes too. It must
// not be copied after its first use.
type File struct {
	Path string // see Path
	Now  func() time.Time

	mu     sync.Mutex
	synced noteVersion // of the note that is known to be safe on the disk
}

// noteVersion changes when the note is replaced.
type noteVersion struct {
	inode   uint64
	changed unix.Timespec
}

// Path is the file of the note: in root's folder.
func Path(getenv func(string) string) string {
	return filepath.Join(disk.RootDir(getenv), disk.RootFile(getenv, "controller"))
}

const (
	schema   = "genv.host.controller/1"
	maxBytes = 64 << 10
	// lockWithin is how long another genv may hold the lock: it only writes a small file.
	lockWithin = 5 * time.Second
)

// storedNote is the file.
type storedNote struct {
	Schema string `json:"schema"`
	Note
}

// Admit decides on a claim, which is nil for a controller without one. If it returns nil,
// the claim is noted on the disk, and what the controller sent may be done. Otherwise nothing
// may be done: the error is a *RefusedError, or says why the note can't be read or written.
func (f *File) Admit(c *Claim) error {
	if c != nil {
		if err := c.Check(); err != nil {
			return err
		}
	}
	return unlessRefused(f.update(c != nil, func(n *Note) (*Note, error) { return n.Admit(c, f.Now()) }))
}

// Noted is the claim that was admitted last, for those who only look; nil if there is none.
func (f *File) Noted() (*Note, error) {
	var noted *Note
	err := f.update(false, func(n *Note) (*Note, error) { noted = n; return n, nil })
	return noted, err
}

// Release notes that the controller with this claim has ended, if it is the one that is noted.
func (f *File) Release(c *Claim) error {
	return f.update(false, func(n *Note) (*Note, error) { return n.Release(c), nil })
}

// Hold admits a claim that was admitted before, and keeps the note as it is until release
// is called: so no other controller begins between this answer and what is done because of
// it. With an error, which is as of Admit, nothing may be done.
func (f *File) Hold(c *Claim) (release func(), err error) {
	lock, err := f.hold(c)
	if err != nil {
		return nil, unlessRefused(err)
	}
	return func() { _ = lock.Close() }, nil
}

// hold returns the lock; nil if no lock is needed, since nothing can be noted.
func (f *File) hold(c *Claim) (lock *os.File, err error) {
	dir, err := folder.OpenTrusted(filepath.Dir(f.Path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unchanged(nil, c, f.Now())
	}
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	name := filepath.Base(f.Path)
	lock, err = dir.LockShared(name+".lock", lockWithin)
	if errors.Is(err, unix.EROFS) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	note, err := f.read(dir, name)
	if err == nil {
		err = unchanged(note, c, f.Now())
	}
	if err != nil {
		_ = lock.Close()
		return nil, err
	}
	return lock, nil
}

// unchanged admits a claim if the note says already what it would say then.
func unchanged(n *Note, c *Claim, now time.Time) error {
	next, err := n.Admit(c, now)
	if err == nil && next != n {
		return errors.New("the controller is no longer the noted one")
	}
	return err
}

// unlessRefused says of an error that is no refusal what follows from it.
func unlessRefused(err error) error {
	var refused *RefusedError
	if err == nil || errors.As(err, &refused) {
		return err
	}
	return fmt.Errorf("which controller may act on this host is not known, so nothing is done: %w", err)
}

// update changes the note under the lock. The lock is only taken for a change, so that a
// folder that became read-only, or a genv that hangs, doesn't keep a host from what needs
// none. Without create, a folder that is missing stays so.
func (f *File) update(create bool, change func(*Note) (*Note, error)) error {
	open := folder.OpenTrusted
	if create {
		open = folder.MakeTrusted
	}
	dir, err := open(filepath.Dir(f.Path))
	if errors.Is(err, fs.ErrNotExist) && !create {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	name := filepath.Base(f.Path)
	note, err := f.read(dir, name)
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
	if note, err = f.read(dir, name); err != nil { // another genv may have changed it
		return err
	}
	next, err := change(note)
	if err != nil || next == note {
		return err
	}
	dir.RemoveLeftovers(name)
	return f.file().Put(dir, storedNote{schema, *next})
}

// read reads the note; nil if there is none. One that is damaged is an error: it may have
// been that of a higher epoch. What is read is safe on the disk: who wrote it may have been
// killed before it had the folder synced.
func (f *File) read(dir *folder.Folder, name string) (*Note, error) {
	data, st, err := dir.Read(name, maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, err := f.file().Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s is damaged: %w: remove it if only one controller runs", dir.Join(name), err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := (noteVersion{st.Ino, st.Ctim}); v != f.synced {
		if err := dir.Sync(); err != nil {
			return nil, err
		}
		f.synced = v
	}
	return &s.Note, nil
}

// file is the file of the note.
func (f *File) file() folder.Note[storedNote] {
	return folder.Note[storedNote]{
		Name: filepath.Base(f.Path), Max: maxBytes, Mode: 0o600, Durable: true, Invalid: errDamaged,
		Check: func(s *storedNote) error { return cmp.Or(folder.CheckSchema(s.Schema, schema), s.Check()) },
	}
}

var errDamaged = errors.New("not a note about a controller")
