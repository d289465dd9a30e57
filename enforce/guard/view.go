package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// view is what a session knows of the host.
type view struct {
	look  *evidence               // the last good one; nil for none yet
	kept  map[snapshot.UID]Minors // what was allowed before there was doubt
	doubt string                  // why nothing is taken away from users now, or empty

	devices []hardware.BusDevice
	known   bool // there was a list of devices

	users exempted
}

// looked notes what a look at the state files saw. allowed is what is allowed so far.
func (v *view) looked(e evidence, allowed map[snapshot.UID]Minors) {
	if v.kept, v.doubt = nil, e.doubt(); v.doubt != "" {
		v.kept = allowed
	}
	if e.err == nil {
		v.look = &e
	}
}

// reset forgets what the state files said, since it gets old while the guard is off.
func (v *view) reset() { v.look, v.kept, v.doubt = nil, nil, "" }

// tookOver notes what an earlier Keeper allowed: it holds until the first good look.
func (v *view) tookOver(allowed map[snapshot.UID]Minors) {
	if v.look == nil || v.doubt != "" {
		v.kept = allowed
	}
}

// plan is who may open what. ok is false as long as too little is known to deny anything.
func (v *view) plan(o *Order) (_ access, ok bool) {
	if v.look == nil && v.kept == nil || !v.known {
		return access{}, false
	}
	look := cmp.Or(v.look, &evidence{})
	return accessOf(facts{
		Files: &look.files, Proven: look.proven, Devices: v.devices, Order: o,
		ExemptUIDs: slices.Concat(o.ExemptUIDs, v.users.uids),
	}).with(v.kept), true
}

// listed notes the list of devices, or why there is none.
func (s *lockedKeeper) listed(devices []hardware.BusDevice, err error) {
	s.listedAt = time.Now()
	problem := ""
	switch {
	case err != nil: // those that were known are still there
		problem = "the GPUs can't be listed: " + err.Error()
	case len(devices) == 0:
		problem = "the driver has no GPUs: nothing is guarded"
	}
	s.problems.set("devices", problem)
	if err == nil {
		s.view.devices, s.view.known = devices, true
		s.denials.know(devices)
	}
}

// exempted are the uids of exempt users, as far as they are known.
type exempted struct {
	names   []snapshot.Username
	uids    []snapshot.UID
	missing string // the problem of names that no user has; empty for none
	err     error  // why some are unknown
}

// knowsUsers says whether the uids of the exempt users are known.
func (v *view) knowsUsers(o *Order) error {
	switch {
	case len(o.ExemptUsers) == 0:
		return nil
	case !slices.Equal(v.users.names, o.ExemptUsers):
		return errors.New("the uids of the exempt users are not known yet")
	}
	return v.users.err
}

// askForUsers looks up the uids of exempt users as long as not all are known.
func (s *lockedKeeper) askForUsers() {
	o := &s.order
	if len(o.ExemptUsers) == 0 {
		s.problems.set("users", "")
		return
	}
	u := &s.view.users
	complete := u.err == nil && u.missing == ""
	if !slices.Equal(u.names, o.ExemptUsers) || !complete && time.Since(s.resolvedAt) >= listEvery {
		names := slices.Clone(o.ExemptUsers)
		s.wantedUsers.Store(&names)
		s.names.request()
	}
}

// usersWithin bounds the time for finding out uids.
const usersWithin = 10 * time.Second

func (k *Keeper) resolve(ctx context.Context, names []snapshot.Username) exempted {
	ctx, cancel := context.WithTimeout(ctx, usersWithin)
	defer cancel()
	e := exempted{names: names}
	for _, name := range names {
		uid, found, err := k.UserID(ctx, name)
		switch {
		case err != nil:
			e.err = fmt.Errorf("the uid of the exempt user %s is unknown: %w", text.Shown(string(name)), err)
		case found:
			e.uids = append(e.uids, uid)
		case e.missing == "":
			e.missing = "this host has no users with the names of exempt ones: " + text.Shown(string(name))
		default:
			e.missing += " " + text.Shown(string(name))
		}
	}
	return e
}

// evidence is what the state files say, and what the kernel says about it.
type evidence struct {
	files  state.Files
	proven map[registration]bool
	err    error // why there is no evidence at all
}

// doubt is why nothing may be taken away from users because of it; empty for none.
func (e *evidence) doubt() string {
	switch {
	case e.err != nil:
		return e.err.Error()
	case e.files.LivenessUnknown:
		return "it is unknown which processes in the state files live"
	}
	return ""
}

// look reads the state files as every genv does, which removes what has ended.
func (k *Keeper) look(ctx context.Context) (e evidence) {
	_, owned, err := k.Place()
	if err == nil {
		e.files, err = k.Read(ctx)
	}
	if e.err = folder.Ignore(err, state.ErrNoDevices); e.err == nil {
		e.proven = k.prove(&e.files, owned)
	}
	return e
}

// prove says which environments are their user's: those in which a living process of that uid, or a Jupyter kernel, is
// registered. If only root may write the files, or if no PID means anything here, all are.
func (k *Keeper) prove(files *state.Files, owned bool) map[registration]bool {
	proven := make(map[registration]bool, len(files.Environments))
	asked := map[snapshot.PID]system.ProcessStatus{}
	for i := range files.Environments {
		e := &files.Environments[i]
		if owned || files.LivenessUnknown || len(e.KernelIDs) > 0 || k.hasOwn(e, asked) {
			proven[registration{EID: e.EID, UID: e.UID}] = true
		}
	}
	return proven
}

// hasOwn says whether a process of the environment's uid, or of an unknown one, is registered in it.
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
