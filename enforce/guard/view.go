package guard

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type view struct {
	look   *observation            // the last good one; nil for none
	glance *observation            // newer than look, or nil
	kept   map[snapshot.UID]Minors // what was allowed before there was doubt
	doubt  string                  // why nothing may be taken away now, or empty

	devices []hardware.BusDevice
	known   bool // there was a list of devices

	users exempted
}

// allowed is what the kernel allows so far.
func (v *view) looked(e observation, allowed map[snapshot.UID]Minors) {
	v.doubt = e.doubt()
	overtaken := v.glance != nil && e.begun.Before(v.glance.begun)
	switch {
	case v.doubt != "":
		v.kept = allowed
	case !overtaken:
		v.kept = nil
	}
	if e.err != nil {
		return
	}
	v.look = &e
	if !overtaken {
		v.glance = nil
	}
}

// The state files change while the guard is off.
func (v *view) reset() { v.look, v.glance, v.kept, v.doubt = nil, nil, nil, "" }

// An unreadable process may delay looks for as long as its user likes.
const lateAfter = 2 * time.Second

// decides returns the observation that may take access away: the last look. If no look followed a glance within
// lateAfter, it is the glance, with what the last look said of processes. A glance never decides before the first look
// or with empty files, unless only root writes them: any user can empty them.
func (v *view) decides() *observation {
	g := v.glance
	switch {
	case g == nil || time.Since(g.begun) < lateAfter:
		return v.look
	case !g.owned && (v.look == nil || len(g.files.Environments) == 0 || len(g.files.Devices) == 0):
		return v.look
	}
	late := observation{files: g.files, proven: maps.Clone(g.proven)}
	if v.look != nil {
		maps.Copy(late.proven, v.look.proven)
		late.files.Devices = slices.Clone(g.files.Devices)
		for i := range late.files.Devices {
			d := &late.files.Devices[i]
			known := v.look.files.Device(d.Index)
			d.Unidentified = known != nil && known.Unidentified
		}
	}
	return &late
}

// plan is who may open what; ok is false while too little is known to deny anything.
func (v *view) plan(o *Order) (_ access, ok bool) {
	look := v.decides()
	if look == nil && v.kept == nil || !v.known {
		return access{}, false
	}
	if look == nil {
		look = &observation{}
	}
	exempt := slices.Concat(o.ExemptUIDs, v.users.uids)
	p := accessOf(look, v.devices, o, exempt)
	if v.glance != nil {
		p = p.with(accessOf(v.glance, v.devices, o, exempt).Allowed)
	}
	return p.with(v.kept), true
}

func (s *lockedKeeper) listed(devices []hardware.BusDevice, err error) {
	s.listedAt = time.Now()
	problem := ""
	switch {
	case err != nil: // the known ones are still there
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

type exempted struct {
	names   []snapshot.Username
	uids    []snapshot.UID
	missing string // the problem of names without a user; empty for none
	err     error  // why some are unknown
}

func (v *view) knowsUsers(o *Order) error {
	switch {
	case len(o.ExemptUsers) == 0:
		return nil
	case !slices.Equal(v.users.names, o.ExemptUsers):
		return errors.New("the uids of the exempt users are not known yet")
	}
	return v.users.err
}

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

type observation struct {
	begun  time.Time // when reading began
	owned  bool      // only root may write the files
	files  state.Files
	proven map[registration]bool
	err    error // why there is no observation at all
}

func (e *observation) doubt() string {
	switch {
	case e.err != nil:
		return e.err.Error()
	case e.files.LivenessUnknown:
		return "it is unknown which processes in the state files live"
	}
	return ""
}

// maxStateFile bounds a state file, in bytes, as in package disk.
const maxStateFile = 8 << 20

// glance reads the state files without lock and cleanup, so that new attachments are noticed whatever hangs. A file may
// be half written: a glance takes something away only if a look is late.
func (k *Keeper) glance() observation {
	e := observation{begun: time.Now()}
	var place string
	if place, e.owned, e.err = k.Place(); e.err != nil {
		return e
	}
	dir, err := folder.OpenExisting(place)
	if err != nil {
		return observation{err: err}
	}
	defer dir.Close()
	for _, file := range []state.File{state.Envs, state.Devices} {
		var data []byte
		if data, _, e.err = dir.Read(file.String(), maxStateFile); e.err == nil {
			e.err = e.files.Decode(file, data)
		}
		if e.err != nil {
			return e
		}
	}
	e.proven = k.prove(&e.files, e.owned, false)
	return e
}

func (k *Keeper) look(ctx context.Context) observation {
	e := observation{begun: time.Now()}
	if _, e.owned, e.err = k.Place(); e.err != nil {
		return e
	}
	if e.files, e.err = k.Read(ctx); errors.Is(e.err, state.ErrNoDevices) {
		e.err = nil
	}
	if e.err == nil {
		e.proven = k.prove(&e.files, e.owned, true)
	}
	return e
}

// prove finds the environments that are provably their user's: those with a registered living process of that uid or,
// after a cleanup, a Jupyter kernel. All are if only root may write the files, or if PIDs mean nothing here.
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
