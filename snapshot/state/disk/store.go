// Package disk reads and writes the state files of a GPU host in their folder, as genv 1.4.3 does, takes the lock that
// guards them, and the lock files of devices. A Store removes what has ended before it returns the files, and writes
// the changes of an update all or none:
//
//	store := disk.New(disk.Dir(os.Getenv), disk.Config{})
//	err := store.Update(ctx, func(f *state.Files) error {
//		_, err := f.Attach(state.AttachRequest{EID: "1667", Count: 2, At: now})
//		return err
//	})
//
// Every user of the host may write to the folder, so nothing in it is trusted. A file that fails a check is reported
// and left unchanged; see ErrCorrupt, ErrLost and folder.ErrUnsafe. Root's note about the folder is in Config.RootDir:
// the PID namespace and boot of the registered PIDs, and what root saw in the files (state.RootNote). nvidia-smi never
// runs under the lock: see RegisterDevices.
package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nss"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

const DefaultDir = "/var/tmp/genv" // the state folder unless GENV_TMPDIR names another one

// Dir returns the state folder. getenv looks up environment variables, such as os.Getenv.
func Dir(getenv func(string) string) string { return cmp.Or(getenv("GENV_TMPDIR"), DefaultDir) }

// Config connects a Store to the machine. The zero value is for a real machine, without root's notes.
type Config struct {
	System      system.System    // nil is that of /proc
	Now         func() time.Time // nil is system.Now
	LockTimeout time.Duration    // for the lock on the state files; 0 is 10 s
	RootDir     string           // as of RootDir; empty for no root's notes: then the PIDs are of our namespaces
	// Username is the name of a uid, or "" for none: an environment has that name, and is an OwnerMismatch if the file
	// has another one. It is called without any lock. Nil doesn't ask.
	Username func(context.Context, snapshot.UID) snapshot.Username
	// Lacks says that a uid certainly has no account. It is called as Username is; nil doesn't ask.
	Lacks func(context.Context, snapshot.UID) bool
	Mark  func(*state.Files) // adds to the files what is kept elsewhere, after each reading; nil adds nothing
	// Keeps says whether root has recorded that a process keeps an environment alive, as a container's init; nil for
	// none. The start is 0 if unknown. It is called under the lock.
	Keeps     func(snapshot.EnvID, snapshot.PID, snapshot.StartTime) bool
	Contained bool // in a container of genv's runtime, where foreign PIDs are right
}

// Store reads and writes the state files in a folder. It may be used by any number of goroutines and processes at once.
type Store struct {
	Config // not changed after New
	dir    string
	looked atomic.Uint64 // the start time of the last look that found nothing changed
	step   func(string)  // for tests: called between the steps of a write
}

// New returns the Store for a folder, which is created on first use.
func New(dir string, o Config) *Store {
	if o.System == nil {
		o.System = system.New(proc.FS{}, nss.Passwd{})
	}
	if o.Now == nil {
		o.Now = system.Now
	}
	o.LockTimeout = cmp.Or(o.LockTimeout, 10*time.Second)
	return &Store{Config: o, dir: dir, step: func(string) {}}
}

// Read returns the contents of the state files after a cleanup of what has ended, which it writes back, as 1.4.3 does,
// or warns. If root's genv doesn't get the lock for some seconds, it reads without it and writes nothing. With
// state.ErrNoDevices the environments are valid. The error may wrap ErrBusy, ErrCorrupt, ErrLost or folder.ErrUnsafe.
func (s *Store) Read(ctx context.Context) (state.Files, error) {
	files, _, err := s.read(ctx)
	return files, err
}

func (s *Store) read(ctx context.Context) (state.Files, Versions, error) {
	t, err := s.updateOrRead(ctx, func(*state.Files) error { return nil })
	files, err := s.finish(ctx, t, t.readable(err))
	return files, t.versions, err
}

// readable makes an error of writing a warning: the contents are known.
func (t *transaction) readable(err error) error {
	if errors.Is(err, errUnwritten) {
		t.files.Warn("the state could be read but not written: %v", err)
		return nil
	}
	return err
}

// ReadRaw is Read without a cleanup, and writes nothing. It serves --no-cleanup.
func (s *Store) ReadRaw(ctx context.Context) (state.Files, error) {
	t := &transaction{Store: s}
	err := s.locked(ctx, s.LockTimeout, func(dir stateDir) error {
		t.dir = dir
		t.load(ctx)
		return t.loadError()
	})
	if errors.Is(err, ErrOwned) {
		t, err = s.readUnlocked(ctx, nil, (*transaction).loadError)
	}
	return s.finish(ctx, t, err)
}

func (s *Store) finish(ctx context.Context, t *transaction, err error) (state.Files, error) {
	if err != nil {
		return state.Files{}, err
	}
	if !t.files.LivenessUnknown {
		s.flagOwners(ctx, &t.files)
	}
	t.files.WarnRenumbered()
	if t.files.Devices == nil {
		err = state.ErrNoDevices
	}
	return t.files, err
}

// Update reads the files under the lock as Read does, calls change, and writes the differences. After an error, also of
// change, the files are intact. change is called again if processes have to be read first.
func (s *Store) Update(ctx context.Context, change func(*state.Files) error) error {
	_, err := s.update(ctx, s.LockTimeout, change)
	return err
}

// TryWrite tries whether the state files can be written. A missing folder is no error.
func (s *Store) TryWrite() error {
	path, _, err := s.Where()
	if err != nil {
		return err
	}
	dir, err := folder.OpenExisting(path)
	if err != nil {
		return folder.Ignore(err, fs.ErrNotExist)
	}
	defer dir.Close()
	return dir.TryWrite()
}

// RegisterDevices is Files.MergeDevices of what nvidia-smi found, or Read where only root may do that.
func (s *Store) RegisterDevices(ctx context.Context, found []snapshot.Device) (state.Files, error) {
	if !s.MayWrite() { // root's genv registers them
		return s.Read(ctx)
	}
	t, err := s.updateOrRead(ctx, func(f *state.Files) error {
		f.MergeDevices(found)
		return nil
	})
	return s.finish(ctx, t, t.readable(err))
}

// Reset replaces a state file, also a corrupt one, by one without environments, or with found devices alone.
func (s *Store) Reset(ctx context.Context, name state.File, found ...snapshot.Device) error {
	var fresh state.Files
	fresh.MergeDevices(found)
	data, err := fresh.Encode(name)
	if err != nil {
		return err
	}
	return s.locked(ctx, s.LockTimeout, func(dir stateDir) error {
		t := &transaction{Store: s, dir: dir, access: s.accessTo(dir, true)}
		defer t.access.root.Close()
		t.useSeen()
		t.load(ctx)
		var next state.Contents
		next[name] = data
		if err := t.replace(next); err != nil {
			return err
		}
		if t.access.writable { // the folder is of these namespaces now
			putSeen(t.access.root, seenNote{t.access.now, t.seen})
		}
		if dir.owned {
			t.onDisk[name] = data
			return s.publish(t.onDisk, false)
		}
		return nil
	})
}

// Folder is the device and inode of the folder of Where, as in "8:1/131", and whether it is root's; nil if unknown.
func (s *Store) Folder() (id string, owned *bool, err error) {
	dir, isOwned, err := s.Where()
	if dir != "" {
		owned = &isOwned
	}
	if err != nil {
		return "", owned, err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", owned, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return fmt.Sprintf("%d:%d/%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino), owned, nil
}

// Errors that callers distinguish with errors.Is; see also folder.ErrUnsafe and state.ErrNoDevices.
var (
	ErrCorrupt = errors.New("state is corrupt") // it can't be decoded, and stays: only a reset replaces it
	ErrLost    = errors.New("state is lost")    // a file is missing although root saw it in this boot
	ErrOwned   = errors.New("the state of this host belongs to root")
	ErrBusy    = errors.New("state is locked") // see BusyError

	errReplaced = errors.New("tampering") // another folder was in the place of root's copy; it was mended
	errPrivate  = errors.New("the state folder is not that of this machine")
)

// BusyError says that a lock wasn't free in time, and who holds it. It wraps ErrBusy and the context's error.
type BusyError struct {
	Path   string
	Waited time.Duration
	Holder *proc.LockHolder // nil if unknown
	Cause  error
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("%s; gave up after %v: wait for it to end, or ask its owner", e.held(),
		e.Waited.Round(time.Millisecond))
}

func (e *BusyError) held() string { return e.Path + " is locked by " + e.Holder.String() }

// Unwrap makes errors.Is find ErrBusy and the context's error.
func (e *BusyError) Unwrap() []error { return []error{ErrBusy, e.Cause} }

// Cache is a Store that takes no lock to read while files and processes are unchanged. It is safe for concurrent use.
type Cache struct {
	*Store

	mu sync.Mutex
	// The last result of Read, and what it depends on.
	valid     bool
	at        time.Time
	versions  Versions
	processes map[snapshot.PID]system.ProcessStatus
	files     state.Files
}

// Versions are the states of both state files; zero for a missing one. Its owner can't set the ctime of a file.
type Versions [len(stateFiles)]unix.Stat_t

// NewCache returns a Cache of a store.
func NewCache(s *Store) *Cache { return &Cache{Store: s} }

// Remember is Store.Remember. The next Read shows it.
func (c *Cache) Remember(ctx context.Context, answers []snapshot.Answer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.valid = false
	return c.Store.Remember(ctx, answers)
}

// Read is Store.Read. The caller may change the lists that it returns.
func (c *Cache) Read(ctx context.Context) (state.Files, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if start := c.System.Uptime(); c.upToDate() {
		c.looked.Store(uint64(start))
		return c.copy(), nil
	}
	var err error
	c.at, c.processes = time.Now(), map[snapshot.PID]system.ProcessStatus{}
	c.files, c.versions, err = c.read(ctx)
	c.files.At = c.at
	c.valid = err == nil && len(c.files.Warnings) == 0 && c.versions.cacheable(c.Now())
	for i := range c.files.Environments {
		e := &c.files.Environments[i]
		c.valid = c.valid && len(e.KernelIDs) == 0 // no PID says whether these live
		for _, pid := range e.PIDs {
			c.processes[pid] = c.System.Process(pid)
		}
	}
	return c.copy(), err
}

// RegisterDevices is Store.RegisterDevices. It may change root's note alone, which the versions don't show.
func (c *Cache) RegisterDevices(ctx context.Context, found []snapshot.Device) (state.Files, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.valid = false
	return c.Store.RegisterDevices(ctx, found)
}

func (c *Cache) upToDate() bool {
	const maxCacheTime = time.Minute // in case a change is not noticed
	if !c.valid || time.Since(c.at) > maxCacheTime {
		return false
	}
	if dir, _, err := c.Where(); err != nil || VersionsIn(dir) != c.versions {
		return false
	}
	for pid, was := range c.processes {
		now := c.System.Process(pid)
		if was.Liveness != system.Alive || now.Liveness != system.Alive || was.Start != now.Start ||
			was.Owner == nil || now.Owner == nil || *was.Owner != *now.Owner {
			return false
		}
	}
	return true
}

// VersionsIn identifies the state files in a folder, following no link.
func VersionsIn(dir string) (v Versions) {
	for i, file := range stateFiles {
		if unix.Lstat(filepath.Join(dir, file.String()), &v[i]) != nil {
			v[i] = unix.Stat_t{}
		}
		v[i].Atim = unix.Timespec{} // reading changes nothing
	}
	return v
}

func (v Versions) cacheable(now time.Time) bool {
	const minAge = 2 * time.Second // of a file: one that is written twice within a tick looks unchanged
	return !slices.ContainsFunc(v[:], func(file unix.Stat_t) bool {
		return file.Ino == 0 || now.Sub(time.Unix(file.Ctim.Unix())) < minAge
	})
}

func (c *Cache) copy() state.Files {
	f := c.files
	f.Environments = slices.Clone(f.Environments)
	f.Devices = slices.Clone(f.Devices)
	f.Warnings = slices.Clone(f.Warnings)
	return f
}
