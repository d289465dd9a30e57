package local

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// owner is the user that a registered process counts for.
type owner struct {
	uid snapshot.UID
	at  time.Time
}

// registry is which processes are registered in which environments.
type registry struct {
	*observer
	environments map[snapshot.PID][]*snapshot.Environment
	starts       map[snapshot.PID]startNow
}

// startNow is when the process that has a PID now started.
type startNow struct {
	start snapshot.StartTime
	err   error
}

// errNoStateFiles stands in for what the state files would say.
var errNoStateFiles = errors.New("the state files could not be read")

// errOtherNamespace is why the PIDs in the state files tell nothing here.
var errOtherNamespace = errors.New("the processes in the state files are of another PID namespace")

// unusable is why the PIDs of the state files can't be used; nil if they can.
func unusable(books state.Files) error {
	if books.LivenessUnknown {
		return errOtherNamespace
	}
	return nil
}

// settle says which environments the processes are in, by the state files: they
// are read after the processes were looked at, so that no environment of a
// process that was seen can be missing. With readErr they could not be read, and
// then only an environ can tell.
func (o *observer) settle(seen []sighting, environments []snapshot.Environment, readErr error) ([]snapshot.Process, []string) {
	r := registry{o, map[snapshot.PID][]*snapshot.Environment{}, map[snapshot.PID]startNow{}}
	for i := range environments {
		for _, pid := range environments[i].PIDs {
			r.environments[pid] = append(r.environments[pid], &environments[i])
		}
	}
	processes := make([]snapshot.Process, 0, len(seen))
	var warnings []string
	for i := range seen {
		s := &seen[i]
		env, err := r.inherited(s)
		if readErr != nil {
			env, err = nil, errNoStateFiles
		}
		doubt := assign(&s.process, s.doubt, env, err)
		processes, warnings = append(processes, s.process), append(warnings, s.warnings...)
		if doubt != nil {
			warnings = append(warnings, doubt.Error())
		}
	}
	return processes, warnings
}

// assign completes the environment of a process, which is that of its environ so
// far: without one, it is in the environment of its nearest registered ancestor,
// if that is registered for the process's own user, or the process is root's.
// doubt is why its environ tells nothing, err why the ancestors might tell more;
// what is returned is why its environment is not known.
func assign(p *snapshot.Process, doubt error, inherited *snapshot.Environment, err error) error {
	if inherited != nil {
		p.Inherited = inherited.EID
	}
	switch {
	case p.EID != "":
		return nil
	case inherited != nil && p.UID != nil && (*p.UID == inherited.UID || *p.UID == 0):
		p.EID, p.EnvUnknown, p.EnvOverwritten = inherited.EID, false, false
		return nil
	case err != nil && !p.EnvUnknown:
		p.EnvUnknown = true
		return fmt.Errorf("whether process %d is in an environment is not known: %w", p.PID, err)
	}
	return doubt
}

// inherited is the environment of the nearest of a process and its ancestors
// that is registered in one of its own user. A registered PID alone proves
// nothing: everybody may write everybody's PIDs into the state files. So nothing
// is inherited from root's processes, PID 1 among them: all descend from these,
// and whoever registered one for root would decide about everybody. The error
// says why there may be one that was not found.
func (r *registry) inherited(s *sighting) (*snapshot.Environment, error) {
	err := s.lineageErr
	for _, a := range s.lineage {
		environments := r.environments[a.PID]
		if len(environments) == 0 {
			continue
		}
		uid, ownerErr := r.ownerOf(a)
		if errors.Is(ownerErr, proc.ErrGone) {
			continue
		}
		if ownerErr != nil {
			err = ownerErr
			continue
		}
		for _, e := range environments {
			if e.UID == uid && uid != 0 {
				return e, nil
			}
		}
	}
	return nil, err
}

// ownerOf is the user that a registered ancestor counts for. It is proc.ErrGone
// if it has ended since, whatever process has its PID now.
func (r *registry) ownerOf(a proc.Ancestor) (snapshot.UID, error) {
	now, known := r.starts[a.PID]
	if !known {
		stat, err := r.fs.Stat(a.PID)
		now = startNow{stat.Start, err}
		r.starts[a.PID] = now
	}
	if now.err != nil {
		return 0, now.err
	}
	if now.start != a.Start {
		return 0, proc.ErrGone
	}
	if o, ok := r.after.owners[a]; ok {
		return o.uid, nil
	}
	o, ok := r.before.owners[a]
	if !ok || r.now.Sub(o.at) >= traitsFor {
		uid, err := r.fs.Owner(a.PID)
		if err != nil {
			return 0, err
		}
		o = owner{uid, r.now}
	}
	r.after.owners[a] = o
	return o.uid, nil
}
