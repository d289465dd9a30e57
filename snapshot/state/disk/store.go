package disk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// DefaultDir is the state folder unless GENV_TMPDIR names another one.
const DefaultDir = "/var/tmp/genv"

// DefaultLockTimeout is how long a Store waits for the lock.
const DefaultLockTimeout = 10 * time.Second

// Dir returns the state folder. getenv looks up environment variables, such as os.Getenv.
func Dir(getenv func(string) string) string { return cmp.Or(getenv("GENV_TMPDIR"), DefaultDir) }

// Config connects a Store to the machine. The zero value is for a real machine, without root's notes.
type Config struct {
	System      system.System    // nil is that of /proc
	Now         func() time.Time // nil is system.Now
	LockTimeout time.Duration    // for the lock on the state files; 0 is DefaultLockTimeout
	// RootDir is the folder of root's notes, such as RootDir(os.Getenv). If it is empty there
	// are none: the Store assumes that the PIDs belong to the namespaces of this process.
	RootDir string
	// Username returns the name of a uid, or "" if it has none. If it is set, an environment gets that name whatever
	// the state file says, and is marked OwnerMismatch if the file has another one. It is called without any lock held.
	Username func(context.Context, snapshot.UID) snapshot.Username
	// Lacks says that a uid certainly has no account: then its environments have no name, whatever
	// the state file says. It is called as Username is; nil doesn't ask.
	Lacks func(context.Context, snapshot.UID) bool
	// Mark adds to the files what is kept elsewhere, after each reading; nil adds nothing.
	Mark func(*state.Files)
	// Keeps says whether root has recorded that a registered process, of whatever user, keeps an environment alive, as
	// the init of a container does. The start time is 0 if it is unknown. nil for none. It is called under the lock.
	Keeps func(snapshot.EnvID, snapshot.PID, snapshot.StartTime) bool
	// Contained says that this process is in a container that genv's runtime started: that the
	// PIDs in the files are not its own is as it has to be, and no warning.
	Contained bool
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
		o.System = system.New(system.RealProc)
	}
	if o.Now == nil {
		o.Now = system.Now
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = DefaultLockTimeout
	}
	return &Store{Config: o, dir: dir, step: func(string) {}}
}

// Read returns the contents of the state files after a cleanup. The cleanup removes processes and Jupyter kernels that
// have ended, environments in which nothing runs, and attachments of environments that do not exist.
//
// As 1.4.3 does, Read writes the result back if anything changed; if it cannot, a warning says so. If root's genv can't
// get the lock for some seconds, it reads without the lock and writes nothing. With state.ErrNoDevices the environments
// are still valid.
//
// The error wraps ErrBusy, ErrCorrupt, ErrLost or folder.ErrUnsafe if that is the cause.
func (s *Store) Read(ctx context.Context) (state.Files, error) {
	files, _, err := s.read(ctx)
	return files, err
}

// read is Read, and returns the versions of the state files that it read.
func (s *Store) read(ctx context.Context) (state.Files, Versions, error) {
	t, err := s.updateOrRead(ctx, func(*state.Files) error { return nil })
	files, err := s.finish(ctx, t, t.unwritten(err))
	return files, t.versions, err
}

// unwritten makes an error of writing a warning: what the files should have is known.
func (t *transaction) unwritten(err error) error {
	var unwritten *writeError
	if errors.As(err, &unwritten) {
		t.files.Warn("the state could be read but not written: %v", err)
		return nil
	}
	return err
}

// ReadRaw returns the contents of the state files without a cleanup, and writes
// nothing to them. It serves --no-cleanup.
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

// finish does the part of a reading that needs no lock.
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

// Update changes the state files under the lock: it reads them as Read does, calls change, and writes the differences.
// If change returns an error, Update returns that error and leaves the files as they were. After any other error the
// files are intact; if the disk failed at the very end, the error says that they may have changed. When it has to look
// for the processes of an environment that a process leaves, it calls change again, with the files as they are then.
func (s *Store) Update(ctx context.Context, change func(*state.Files) error) error {
	_, err := s.update(ctx, s.LockTimeout, change)
	return err
}

// TryWrite tries whether the state files can be written, without a change to what is there. A missing folder is no
// error.
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

// RegisterDevices registers the devices that nvidia-smi found, as
// Files.MergeDevices does. Where only root may do that, it just reads them. Like Read, it warns if it can't write.
func (s *Store) RegisterDevices(ctx context.Context, found []snapshot.Device) (state.Files, error) {
	if !s.MayWrite() { // root's genv registers them
		return s.Read(ctx)
	}
	t, err := s.updateOrRead(ctx, func(f *state.Files) error {
		f.MergeDevices(found)
		return nil
	})
	return s.finish(ctx, t, t.unwritten(err))
}

// ResetEnvironments replaces envs.json by one without environments. It works on a
// corrupt or unsafe file too, and is only called when a user asks for it.
func (s *Store) ResetEnvironments(ctx context.Context) error {
	return s.reset(ctx, state.Envs, &state.Files{})
}

// ResetDevices replaces devices.json by one with the devices that nvidia-smi found
// and no attachments. See ResetEnvironments.
func (s *Store) ResetDevices(ctx context.Context, found []snapshot.Device) error {
	var fresh state.Files
	fresh.MergeDevices(found)
	return s.reset(ctx, state.Devices, &fresh)
}

func (s *Store) reset(ctx context.Context, name state.File, fresh *state.Files) error {
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

// FolderID identifies the state folder on this machine by its device and inode, as in
// "8:1/131": it is the same for all paths to the folder. Root's own is that of root's state.
func (s *Store) FolderID() (string, error) {
	dir, _, err := s.Where()
	if err != nil {
		return "", err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return "", &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return fmt.Sprintf("%d:%d/%d", unix.Major(st.Dev), unix.Minor(st.Dev), st.Ino), nil
}
