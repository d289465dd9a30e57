package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

type transaction struct {
	*Store
	dir      stateDir
	access   folderAccess
	onDisk   state.Contents // nil: must be written
	errs     [2]error       // why a file couldn't be read
	versions Versions       // of the files afterwards
	files    state.Files    // decoded and maybe changed
	seen     state.RootNote // root's note of this boot, including this look
	// The note's environments, of this boot or an earlier one:
	noted, earlierBoot map[state.EnvironmentKey]*state.SeenEnvironment

	answers       []snapshot.Answer                   // as read
	starts        map[snapshot.PID]snapshot.StartTime // of newly registered processes
	process       func(snapshot.PID) system.ProcessStatus
	running       *running
	rootProcesses func() map[snapshot.PID]system.RunningProcess // root's processes, listed once
}

// begin reads root's note. The caller closes access.root.
func (s *Store) begin(dir stateDir, known *running) *transaction {
	t := &transaction{
		Store: s, dir: dir, access: s.accessTo(dir, false), process: memoize(s.System.Process), running: known,
		starts: map[snapshot.PID]snapshot.StartTime{},
	}
	t.rootProcesses = sync.OnceValue(func() map[snapshot.PID]system.RunningProcess {
		return byPID(t.running.processes(0))
	})
	t.useSeen()
	return t
}

func (t *transaction) useSeen() {
	n := t.access.seen
	switch boot := t.System.BootID(); {
	case n == nil || boot == "":
	case n.BootID == boot:
		t.seen, t.noted = n.Seen, n.Seen.ByKey()
	default:
		t.earlierBoot = n.Seen.ByKey()
	}
}

func (s *Store) transact(ctx context.Context, timeout time.Duration, run func(*transaction) error,
) (*transaction, error) {
	t := &transaction{Store: s}
	err := s.afterReading(func(known *running) error {
		return s.locked(ctx, timeout, func(dir stateDir) error {
			t = s.begin(dir, known)
			defer t.access.root.Close()
			return run(t)
		})
	})
	return t, err
}

// update is transact for a change. After a write error, its files are valid.
func (s *Store) update(ctx context.Context, timeout time.Duration, change func(*state.Files) error,
) (*transaction, error) {
	return s.transact(ctx, timeout, func(t *transaction) error {
		uptime := s.System.Uptime()
		if err := t.loadAndClean(ctx); err != nil {
			return err
		}
		t.files.FindSuccessors = t.findSuccessors
		err := change(&t.files)
		t.files.FindSuccessors = nil
		switch {
		case t.running.unread:
			return errUnread
		case err != nil:
			return err
		}
		return t.save(uptime)
	})
}

func (t *transaction) save(uptime snapshot.StartTime) error {
	written, err := t.writeChanges()
	if err != nil {
		return err
	}
	t.noteLook(uptime)
	if t.access.mayClean {
		t.writeAnswers()
	}
	if t.dir.owned {
		if err := t.publish(written, false); errors.Is(err, errReplaced) {
			t.files.Warn("%v", err)
		} else if err != nil {
			t.files.Warn("the copy of the state files for genv 1.4.3 could not be written: %v", err)
		}
	}
	t.versions = VersionsIn(t.dir.Path)
	return nil
}

func (t *transaction) loadAndClean(ctx context.Context) error {
	t.load(ctx)
	return t.clean()
}

func (t *transaction) clean() error {
	switch {
	case t.access.private: // what isn't in it isn't lost
		return fmt.Errorf("%w: %s is %s; nothing is lost: run genv from a login that shares the folder with root,"+
			" or turn that off for this one", errPrivate, t.dir.Path, privateFolder)
	case t.loadError() != nil:
		return t.loadError()
	case t.access.mayClean:
		t.readAnswers()
		t.removeDead()
	default:
		t.files.LivenessUnknown, t.files.Foreign = true, t.access.foreign
		if !t.Contained {
			t.files.Warnings = append(t.files.Warnings, t.access.warning)
		}
	}
	if t.running.unread {
		return errUnread
	}
	t.files.KeepsNote = t.access.writable
	t.seen.Apply(&t.files)
	t.markFiles() // again, as GPU indices may have changed
	return nil
}

const readerTimeout = 2 * time.Second // for root to get the lock: any user can hold it

// updateOrRead is update. If root gets no lock soon, it changes only what it returns.
func (s *Store) updateOrRead(ctx context.Context, change func(*state.Files) error) (*transaction, error) {
	timeout := s.LockTimeout
	if s.keepsNotes() {
		timeout = min(s.LockTimeout, readerTimeout)
	}
	t, err := s.update(ctx, timeout, change)
	busy, isBusy := errors.AsType[*BusyError](err)
	if !errors.Is(err, ErrOwned) && !(isBusy && s.keepsNotes()) || ctx.Err() != nil {
		return t, err
	}
	t, err = s.readUnlocked(ctx, busy, (*transaction).clean)
	if err == nil {
		err = change(&t.files)
		t.look(s.System.Uptime())
	}
	return t, err
}

// readUnlocked reads without the lock, and writes nothing. Files are replaced as a whole, so two equal readings are as
// good; otherwise it returns busy. For root's files busy is nil, and the last reading counts.
func (s *Store) readUnlocked(ctx context.Context, busy *BusyError, clean func(*transaction) error,
) (t *transaction, err error) {
	err = s.afterReading(func(known *running) error {
		t = &transaction{}
		dir, err := s.open()
		if err != nil {
			return err
		}
		defer dir.Close()
		if !dir.owned && busy == nil { // the state was just given back
			return errMoved
		}
		defer func() { t.access.root.Close() }()
		for n, same := 0, false; !same && n < 10; n++ {
			t.access.root.Close()
			t = s.begin(dir, known)
			again := &transaction{Store: s, dir: dir}
			t.load(ctx)
			again.load(ctx)
			same = slices.EqualFunc(t.onDisk[:], again.onDisk[:], state.Same)
			if !dir.owned && (!t.access.writable || !same) {
				return busy
			}
		}
		if err := clean(t); err != nil || dir.owned {
			return err
		}
		t.files.Warn("%s: the state files were read without it, and nothing was written", busy.held())
		return nil
	})
	return t, err
}

const lockFile = "genv.lock" // guards every change, in 1.4.3 too; never replaced, which would make a second lock

var errMoved = errors.New("the state files have another folder now")

func (s *Store) locked(ctx context.Context, timeout time.Duration, f func(stateDir) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for {
		if err := s.lockedOnce(ctx, f); !errors.Is(err, errMoved) || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Store) lockedOnce(ctx context.Context, f func(stateDir) error) error {
	dir, err := s.open()
	if err != nil {
		return err
	}
	defer dir.Close()
	if dir.owned && !dir.IsOurs() {
		return fmt.Errorf("%w: uid %d can't change %s", ErrOwned, os.Geteuid(), s.OwnedPath())
	}
	file, err := lock(ctx, dir.Folder, lockFile, dir.mode(ownedLockMode))
	if err != nil {
		return err
	}
	defer unlock(file)
	switch owner, err := s.Owner(); {
	case err != nil:
		return err
	case (owner != nil) != dir.owned:
		return errMoved
	}
	return f(dir)
}

func lock(ctx context.Context, dir *folder.Folder, name string, mode uint32) (*os.File, error) {
	for ctx.Err() == nil {
		if err := dir.Ensure(name, mode); err != nil {
			return nil, err
		}
		file, st, err := dir.OpenLock(name, maxFileSize)
		if errors.Is(err, fs.ErrNotExist) {
			continue // just removed
		}
		if err != nil {
			return nil, err
		}
		begun := time.Now()
		if err = folder.Flock(ctx, file, unix.LOCK_EX); errors.Is(err, folder.ErrLocked) {
			holder := proc.LockHolderOf(system.RealProc, &st)
			err = &BusyError{Path: file.Name(), Waited: time.Since(begun), Holder: holder, Cause: ctx.Err()}
		}
		if err != nil {
			_ = file.Close()
			return nil, err
		}
		if dir.StillNamed(name, &st) {
			return file, nil
		}
		unlock(file) // the file was removed while we waited
	}
	return nil, &BusyError{Path: dir.Join(name), Cause: ctx.Err()}
}

// unlock works at once, even if a starting child still has the descriptor.
func unlock(file *os.File) {
	_ = unix.Flock(int(file.Fd()), unix.LOCK_UN)
	_ = file.Close()
}

const locksName = "devices"

// LockOf names the lock file of a device.
func LockOf(index snapshot.DeviceIndex) string { return index.String() + ".lock" }

// LockDevices takes devices' locks in index order, until release or the process ends. It fails with a BusyError when
// ctx ends. flock(1) and 1.4.3's SDK use the same files.
func (s *Store) LockDevices(ctx context.Context, indices []snapshot.DeviceIndex) (release func(), err error) {
	parent, err := folder.Open(s.dir)
	if err != nil {
		return nil, err
	}
	parent.LockWhole()
	var held []*os.File
	release = sync.OnceFunc(func() {
		for _, file := range held {
			unlock(file)
		}
		parent.Close()
	})
	dir, err := parent.SharedSub(locksName)
	if err != nil {
		release()
		return nil, err
	}
	defer dir.Close()
	for _, index := range slices.Compact(slices.Sorted(slices.Values(indices))) {
		if index < 0 {
			release()
			return nil, state.Refuse("GPU %d: an index can't be negative", index)
		}
		file, err := lock(ctx, dir, LockOf(index), folder.SharedMode)
		if err != nil {
			release()
			return nil, err
		}
		held = append(held, file)
	}
	return release, nil
}
