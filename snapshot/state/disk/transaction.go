package disk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// transaction is one read-modify-write of the state files.
type transaction struct {
	*Store
	dir      place
	access   folderAccess                            // what this genv may do with the folder
	backup   *backup                                 // root's copy of the files; nil for none
	onDisk   state.Contents                          // of the files, nil for one that has to be written
	errs     [2]error                                // why a file could not be read
	stamp    stamp                                   // of envs.json as it was read
	restored bool                                    // envs.json, from root's copy
	versions Versions                                // of the files after the transaction
	files    state.Files                             // decoded, and changed since
	tampered bool                                    // the folder can't be entered
	looks    state.Looks                             // those of root's note, then with this one
	known    starts                                  // which processes the PIDs in envs.json mean
	process  func(snapshot.PID) system.ProcessStatus // asks about each PID once
	census   *census
	lost     map[state.File]error // why root's copy replaces a file
	// rootProcesses are the processes of root, listed once.
	rootProcesses func() map[snapshot.PID]system.RunningProcess
}

// begin reads root's copy, and what this genv may do with the folder.
func (s *Store) begin(dir place, known *census) *transaction {
	return s.beginWith(dir, s.accessTo(dir, false), known)
}

func (s *Store) beginWith(dir place, may folderAccess, known *census) *transaction {
	t := &transaction{Store: s, dir: dir, access: may, process: once(s.System.Process), census: known}
	t.rootProcesses = sync.OnceValue(func() map[snapshot.PID]system.RunningProcess {
		list, _ := t.census.processes(0)
		return byPID(list)
	})
	t.backup = t.readBackup()
	return t
}

// transact runs a transaction with the lock held. When it needs a census that isn't read, the lock is released, and
// it is tried again from the start after the reading.
func (s *Store) transact(ctx context.Context, timeout time.Duration, run func(*transaction) error) (*transaction, error) {
	t, known := &transaction{Store: s}, newCensus(s.System)
	var repairs []string // of earlier attempts
	for {
		known.locked = true
		err := s.locked(ctx, timeout, func(dir place) error {
			dir.Repairs = append(repairs, dir.Repairs...)
			t = s.begin(dir, known)
			defer t.access.root.Close()
			return run(t)
		})
		if !errors.Is(err, errMissing) {
			return t, err
		}
		repairs = t.dir.Repairs
		known.read()
	}
}

// update is transact for a change. After an error of writing, its files are valid.
func (s *Store) update(ctx context.Context, timeout time.Duration, change func(*state.Files) error) (*transaction, error) {
	return s.transact(ctx, timeout, func(t *transaction) error {
		uptime := s.System.Uptime()
		t.load(ctx)
		if err := t.restoreAndClean(); err != nil {
			return err
		}
		t.repairModes()
		t.files.FindSuccessors = t.findSuccessors
		err := change(&t.files)
		t.files.FindSuccessors = nil
		switch {
		case t.census.missing:
			return errMissing
		case err != nil:
			return err
		}
		return t.save(uptime)
	})
}

// save writes the changes, root's copy and notes, and the start times.
func (t *transaction) save(uptime snapshot.StartTime) error {
	t.notePending(uptime)
	written, err := t.writeChanges()
	if err != nil {
		return err
	}
	if t.writeBackup(written) {
		t.noteComplete(uptime)
	}
	t.noteLook(uptime)
	if t.access.mayClean {
		t.writeStarts()
	}
	t.files.Warnings = append(t.files.Warnings, t.dir.Repairs...)
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

// restoreAndClean restores lost files, and then removes what has ended.
func (t *transaction) restoreAndClean() error {
	if err := t.restore(); err != nil {
		return err
	}
	if err := t.loadError(); err != nil {
		return err
	}
	t.readStarts()
	t.clean()
	if t.census.missing {
		return errMissing
	}
	if err := t.clearWay(); err != nil {
		return err
	}
	t.applyLooks()
	return nil
}

// clean removes what has ended, and registers again what was lost. It does nothing
// if it is unknown which processes live.
func (t *transaction) clean() {
	if !t.access.mayClean {
		t.files.LivenessUnknown, t.files.Foreign = true, t.access.foreign
		if !t.Contained {
			t.files.Warnings = append(t.files.Warnings, t.access.warning)
		}
		return
	}
	if t.restored {
		t.recoverNew()
	}
	t.findOwners()
	t.removeDead()
	changed := t.backup != nil && !t.restored && !state.Same(t.backup.contents[state.Envs], t.onDisk[state.Envs])
	if changed && t.access.writable && t.recoverDropped() {
		// What lost these environments has also lost newer ones, which the copy lacks.
		t.noteRestoration()
		t.recoverNew()
		t.markFiles()
	}
	t.files.Restorations = t.restorations()
}

// readerTimeout is how long root's genv waits for the lock when it only reads, or takes the
// state over: any user can hold the lock for any time.
const readerTimeout = 2 * time.Second

// updateOrRead is update, but if root's genv can't get the lock soon, it changes
// only what it returns.
func (s *Store) updateOrRead(ctx context.Context, change func(*state.Files) error) (*transaction, error) {
	timeout := s.LockTimeout
	if s.mayRepair() {
		timeout = min(s.LockTimeout, readerTimeout)
	}
	t, err := s.update(ctx, timeout, change)
	var busy *BusyError
	if errors.Is(err, ErrTampered) {
		t, err = s.readCopy(err)
	} else if owned := errors.Is(err, ErrOwned); !owned && (!errors.As(err, &busy) || !s.mayRepair()) || ctx.Err() != nil {
		return t, err
	} else {
		t, err = s.readUnlocked(ctx, busy, (*transaction).restoreAndClean)
	}
	if err == nil {
		err = change(&t.files)
		t.look(s.System.Uptime())
	}
	return t, err
}

// readUnlocked reads the files while another process holds the lock, and writes
// nothing to them. genv replaces a file as a whole, so two equal and valid readings
// are what a reader with the lock would get. If that fails, the error is busy, which is nil
// for files that only root may write.
func (s *Store) readUnlocked(ctx context.Context, busy *BusyError, clean func(*transaction) error) (*transaction, error) {
	dir, err := s.open()
	if err != nil {
		return &transaction{}, err
	}
	defer dir.Close()
	if dir.owned {
		t := s.readOwned(dir, func(t *transaction) { t.load(ctx) })
		defer t.access.root.Close()
		return t, clean(t)
	}
	if busy == nil { // the state was given back just now
		return &transaction{}, errMoved
	}
	t := s.begin(dir, newCensus(s.System))
	defer t.access.root.Close()
	t.load(ctx)
	again := &transaction{Store: s, dir: dir}
	again.load(ctx)
	if !t.access.writable || !t.onDisk.Equal(again.onDisk) {
		return t, busy
	}
	lostDevices := t.backup != nil && t.backup.contents[state.Devices] != nil && t.onDisk[state.Devices] == nil
	if err := clean(t); err != nil {
		return t, err
	}
	t.files.DevicesNotSaved = lostDevices
	t.files.Warnings = append(t.files.Warnings, fmt.Sprintf("%s: the state files were read without it, and nothing was written", busy.held()))
	return t, nil
}
