package disk

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	access   access                                  // what this genv may do with the folder
	backup   *backup                                 // root's copy of the files; nil for none
	onDisk   state.Contents                          // of the files, nil for one that has to be written
	errs     [2]error                                // why a file could not be read
	stamp    stamp                                   // of envs.json as it was read
	restored bool                                    // envs.json, from root's copy
	versions versions                                // of the files after the transaction
	files    state.Files                             // decoded, and changed since
	tampered bool                                    // the folder can't be entered
	looks    state.Looks                             // those of root's note, then with this one
	known    starts                                  // which processes the PIDs in envs.json mean
	process  func(snapshot.PID) system.ProcessStatus // asks about each PID once
	running  *processList
	// kernels says which Jupyter kernels live; nil to ask for it when it is needed, without the lock.
	kernels map[system.Kernel]system.Liveness
	// rootProcesses are the processes of root, listed once.
	rootProcesses func() map[snapshot.PID]system.RunningProcess
}

// begin reads root's copy, and what this genv may do with the folder.
func (s *Store) begin(dir place) *transaction { return s.beginWith(dir, s.accessTo(dir, false)) }

func (s *Store) beginWith(dir place, may access) *transaction {
	t := &transaction{
		Store: s, dir: dir, access: may,
		process: once(s.system.Process), running: &processList{system: s.system},
	}
	t.rootProcesses = sync.OnceValue(func() map[snapshot.PID]system.RunningProcess {
		list, _ := t.running.of(0)
		return byPID(list)
	})
	t.backup = t.readBackup()
	return t
}

// errKernels says that kernels have to be asked for before a transaction.
var errKernels = errors.New("kernels are registered")

// update runs a transaction. After an error of writing, its files are valid. Users can make it slow to find out
// which of their kernels live: then the lock is released, and those that are registered meanwhile count as living.
func (s *Store) update(ctx context.Context, timeout time.Duration, change func(*state.Files) error) (*transaction, error) {
	t, err := s.updateWith(ctx, timeout, change, nil)
	if errors.Is(err, errKernels) {
		kernels := map[system.Kernel]system.Liveness{} // unknown, if /proc can't be read
		maps.Copy(kernels, s.system.Kernels(registeredKernels(&t.files)))
		t, err = s.updateWith(ctx, timeout, change, kernels)
	}
	return t, err
}

func (s *Store) updateWith(ctx context.Context, timeout time.Duration, change func(*state.Files) error, kernels map[system.Kernel]system.Liveness) (*transaction, error) {
	t := &transaction{Store: s}
	err := s.locked(ctx, timeout, func(dir place) error {
		uptime := s.system.Uptime()
		t = s.begin(dir)
		defer t.access.root.Close()
		t.load(ctx)
		if kernels == nil && len(registeredKernels(&t.files)) > 0 {
			return errKernels
		}
		if t.kernels = kernels; kernels == nil { // what root's copy restores is unknown
			t.kernels = map[system.Kernel]system.Liveness{}
		}
		if err := t.restoreAndClean(); err != nil {
			return err
		}
		t.repairModes()
		t.files.FindSuccessors = t.findSuccessors
		err := change(&t.files)
		t.files.FindSuccessors = nil
		if err != nil {
			return err
		}
		return t.save(uptime)
	})
	return t, err
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
	t.versions = versionsIn(t.dir.Path)
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
	t.applyLooks()
	return nil
}

// clean removes what has ended, and registers again what was lost. It does nothing
// if it is unknown which processes live.
func (t *transaction) clean() {
	if !t.access.mayClean {
		t.files.LivenessUnknown, t.files.Foreign = true, t.access.foreign
		if !t.contained {
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
	timeout := s.timeout
	if s.mayRepair() {
		timeout = min(s.timeout, readerTimeout)
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
		t.look(s.system.Uptime())
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
	t := s.begin(dir)
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
