package guard

import (
	"context"
	"errors"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
)

// evidence is what the state files say, and what the kernel says about it.
type evidence struct {
	begun  time.Time // when reading began
	owned  bool      // only root may write the files
	files  state.Files
	proven map[registration]bool
	err    error // why there is no evidence at all
}

// doubt is why nothing may be taken away from users because of it: what the files lack may still be true. It is empty
// for none.
func (e *evidence) doubt() string {
	switch {
	case e.err != nil:
		return e.err.Error()
	case e.files.LivenessUnknown:
		return "it is unknown which processes in the state files live"
	}
	return ""
}

// maxStateFile bounds a state file, in bytes, as package disk does.
const maxStateFile = 8 << 20

// glance reads the state files as they are at this moment, without a lock and without a
// cleanup: whatever else hangs, a new attachment is noticed. It is a reason to take something
// away only where a look is late: a file may just be in the middle of being written.
func (k *Keeper) glance() evidence {
	begun := time.Now()
	place, owned, err := k.Place()
	if err != nil {
		return evidence{err: err}
	}
	dir, err := folder.OpenExisting(place)
	if err != nil {
		return evidence{err: err}
	}
	defer dir.Close()
	e := evidence{begun: begun, owned: owned}
	for _, file := range []state.File{state.Envs, state.Devices} {
		data, _, err := dir.Read(file.String(), maxStateFile)
		if err == nil {
			err = e.files.Decode(file, data)
		}
		if err != nil {
			return evidence{err: err}
		}
	}
	e.proven = k.prove(&e.files, owned, false)
	return e
}

// look reads the state files as every genv does, which removes what has ended.
func (k *Keeper) look(ctx context.Context) evidence {
	begun := time.Now()
	_, owned, err := k.Place()
	if err != nil {
		return evidence{begun: begun, err: err}
	}
	files, err := k.Read(ctx)
	if err != nil && !errors.Is(err, state.ErrNoDevices) {
		return evidence{begun: begun, err: err}
	}
	return evidence{begun: begun, files: files, proven: k.prove(&files, owned, true)}
}

// prove says which environments are their user's: those in which a living process of that
// uid is registered. After a cleanup, a registered Jupyter kernel lives, too, or may. If
// only root may write the files, or if no PID means anything here, all are.
func (k *Keeper) prove(files *state.Files, owned, clean bool) map[registration]bool {
	proven := make(map[registration]bool, len(files.Environments))
	asked := map[snapshot.PID]system.ProcessStatus{}
	for i := range files.Environments {
		e := &files.Environments[i]
		if owned || files.LivenessUnknown || clean && len(e.KernelIDs) > 0 || k.hasOwn(e, asked) {
			proven[registration{EID: e.EID, UID: e.UID}] = true
		}
	}
	return proven
}

// hasOwn says whether a process of the environment's uid is registered in it. An owner that
// the kernel doesn't report may be that user.
func (k *Keeper) hasOwn(e *snapshot.Environment, asked map[snapshot.PID]system.ProcessStatus) bool {
	for _, pid := range e.PIDs {
		now, known := asked[pid]
		if !known {
			now = k.Process(pid)
			asked[pid] = now
		}
		if now.Liveness == system.Alive && (now.Owner == nil || *now.Owner == e.UID) {
			return true
		}
	}
	return false
}
