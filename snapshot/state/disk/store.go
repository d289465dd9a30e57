// Package disk reads and writes the state files of a GPU host as genv 1.4.3 does, and takes their lock and the lock
// files of devices. A Store removes what has ended before it returns the files, and writes an update all or none:
//
//	store := disk.New(disk.Dir(os.Getenv), disk.Config{})
//	err := store.Update(ctx, func(f *state.Files) error {
//		_, err := f.Attach(state.AttachRequest{EID: "1667", Count: 2, At: now})
//		return err
//	})
//
// Every user may write to the folder, so nothing in it is trusted. A file that fails a check is reported and left
// unchanged: see ErrCorrupt, ErrLost and folder.ErrUnsafe. Root's note in Config.RootDir has the PID namespace and boot
// of the registered PIDs, and what root saw in the files (state.RootNote). nvidia-smi never runs under the lock: see
// RegisterDevices.
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

const DefaultDir = "/var/tmp/genv" // unless GENV_TMPDIR is set

// Dir returns the state folder.
func Dir(getenv func(string) string) string { return cmp.Or(getenv("GENV_TMPDIR"), DefaultDir) }

// Config connects a Store to the machine. Zero: a real machine without root's notes.
type Config struct {
	System      system.System    // nil: /proc
	Now         func() time.Time // nil: system.Now
	LockTimeout time.Duration    // for the lock of the state files; 0: 10 s
	RootDir     string           // see RootDir; empty: no root's notes, and all PIDs are of our namespaces
	// Username names a uid; "" for none. Environments get that name, and OwnerMismatch if the file's differs. No lock
	// is held. May be nil.
	Username func(context.Context, snapshot.UID) snapshot.Username
	// Lacks says that a uid certainly has no account. No lock is held. May be nil.
	Lacks func(context.Context, snapshot.UID) bool
	Mark  func(*state.Files) // adds what is kept elsewhere, after each read; may be nil
	// Keeps: root recorded that a process, such as a container's init, keeps an environment alive. Start is 0 if
	// unknown. The lock is held. May be nil.
	Keeps     func(snapshot.EnvID, snapshot.PID, snapshot.StartTime) bool
	Contained bool // in a container of genv's runtime, which expects foreign PIDs
}

// Store is safe for concurrent goroutines and processes.
type Store struct {
	Config // not changed after New
	dir    string
	looked atomic.Uint64 // start time of the last look without changes
	step   func(string)  // for tests: called between the steps of a write
}

// New returns the Store of a folder, which the first use creates.
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

// Read returns the state files after a cleanup, which it writes back like 1.4.3, or warns. Root, after seconds without
// the lock, reads without it and writes nothing. With state.ErrNoDevices the environments are valid. The error may wrap
// ErrBusy, ErrCorrupt, ErrLost or folder.ErrUnsafe.
func (s *Store) Read(ctx context.Context) (state.Files, error) {
	files, _, err := s.read(ctx)
	return files, err
}

func (s *Store) read(ctx context.Context) (state.Files, Versions, error) {
	t, err := s.updateOrRead(ctx, func(*state.Files) error { return nil })
	files, err := s.finish(ctx, t, t.readable(err))
	return files, t.versions, err
}

// readable makes a write error a warning, as the contents are known.
func (t *transaction) readable(err error) error {
	if errors.Is(err, errUnwritten) {
		t.files.Warn("the state could be read but not written: %v", err)
		return nil
	}
	return err
}

// ReadRaw is Read without cleanup or writes, for --no-cleanup.
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

// Update reads the files under the lock like Read, calls change, and writes the differences. Errors, also of change,
// leave the files intact. change runs again if processes must be read first.
func (s *Store) Update(ctx context.Context, change func(*state.Files) error) error {
	_, err := s.update(ctx, s.LockTimeout, change)
	return err
}

// TryWrite tests whether the state files are writable. A missing folder is no error.
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

// RegisterDevices is Files.MergeDevices for nvidia-smi's devices, or Read where only root may.
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

// Reset empties a state file, even a corrupt one. devices.json gets the found devices.
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
		if t.access.writable { // the folder now belongs to these namespaces
			putSeen(t.access.root, seenNote{t.access.now, t.seen})
		}
		if dir.owned {
			t.onDisk[name] = data
			return s.publish(t.onDisk, false)
		}
		return nil
	})
}

// Folder identifies the state folder, such as "8:1/131" (device and inode). owned is nil if unknown.
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
	ErrCorrupt = errors.New("state is corrupt") // can't be decoded; only a reset replaces it
	ErrLost    = errors.New("state is lost")    // missing, but root saw it since boot
	ErrOwned   = errors.New("the state of this host belongs to root")
	ErrBusy    = errors.New("state is locked") // see BusyError

	errReplaced = errors.New("tampering") // the folder of root's copy was replaced, and is mended
	errPrivate  = errors.New("the state folder is not that of this machine")
)

// BusyError says that a lock wasn't free in time, and who holds it.
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

// Cache is a Store that reads without a lock while nothing changed. It is safe for concurrent use.
type Cache struct {
	*Store

	mu sync.Mutex
	// The last result of Read, and its inputs:
	valid     bool
	at        time.Time
	versions  Versions
	processes map[snapshot.PID]system.ProcessStatus
	files     state.Files
}

// Versions are the stats of both state files; zero if missing. The owner of a file can't set its ctime.
type Versions [len(stateFiles)]unix.Stat_t

// NewCache returns a Cache of a store.
func NewCache(s *Store) *Cache { return &Cache{Store: s} }

// Remember is Store.Remember. The next Read includes it.
func (c *Cache) Remember(ctx context.Context, answers []snapshot.Answer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.valid = false
	return c.Store.Remember(ctx, answers)
}

// Read is Store.Read. The caller may change the returned lists.
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
		c.valid = c.valid && len(e.KernelIDs) == 0 // their liveness has no PID
		for _, pid := range e.PIDs {
			c.processes[pid] = c.System.Process(pid)
		}
	}
	return c.copy(), err
}

// RegisterDevices is Store.RegisterDevices. The versions don't show a change of only root's note.
func (c *Cache) RegisterDevices(ctx context.Context, found []snapshot.Device) (state.Files, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.valid = false
	return c.Store.RegisterDevices(ctx, found)
}

func (c *Cache) upToDate() bool {
	const maxCacheTime = time.Minute // in case a change goes unnoticed
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

// VersionsIn doesn't follow links.
func VersionsIn(dir string) (v Versions) {
	for i, file := range stateFiles {
		if unix.Lstat(filepath.Join(dir, file.String()), &v[i]) != nil {
			v[i] = unix.Stat_t{}
		}
		v[i].Atim = unix.Timespec{} // reading isn't a change
	}
	return v
}

func (v Versions) cacheable(now time.Time) bool {
	const minAge = 2 * time.Second // two writes within one clock tick look the same
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
