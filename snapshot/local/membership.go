package local

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// cachedOwner is the user for whom a registered process counts.
type cachedOwner struct {
	uid snapshot.UID
	at  time.Time
}

// registry knows which processes are registered in which environments.
type registry struct {
	*observer
	environments map[snapshot.PID][]*snapshot.Environment
	starts       map[snapshot.PID]currentStart
}

// currentStart is the start time of the process that has a PID now.
type currentStart struct {
	start snapshot.StartTime
	err   error
}

var (
	errNoStateFiles   = errors.New("the state files can't be used")
	errOtherNamespace = errors.New("the processes in the state files are of another PID namespace")
)

// unusable is why the PIDs in the state files can't be used, or nil.
func unusable(files state.Files) error {
	if files.LivenessUnknown {
		return errOtherNamespace
	}
	return nil
}

// resolve finds the environments of the processes in the state files. These are read
// after the processes, so that no environment of an observed process can be missing.
// With readErr they could not be read, and only an environ shows an environment.
func (o *observer) resolve(seen []observation, environments []snapshot.Environment, readErr error) ([]snapshot.Process, []string) {
	r := registry{o, map[snapshot.PID][]*snapshot.Environment{}, map[snapshot.PID]currentStart{}}
	for i := range environments {
		for _, pid := range environments[i].PIDs {
			r.environments[pid] = append(r.environments[pid], &environments[i])
		}
	}
	processes := make([]snapshot.Process, 0, len(seen))
	var warnings []string
	unread := 0
	for i := range seen {
		s := &seen[i]
		env, err := r.inherited(s)
		if readErr != nil {
			env, err = nil, errNoStateFiles
		}
		unknown := s.assign(env, err)
		processes, warnings = append(processes, s.process), append(warnings, s.warnings...)
		switch {
		case errors.Is(unknown, proc.ErrNotRead):
			unread++
		case unknown != nil:
			warnings = append(warnings, unknown.Error())
		}
	}
	if unread > 0 {
		warnings = append(warnings, fmt.Sprintf("the environments of %d processes are not known yet: their users have many or slow processes, and the next looks read on", unread))
	}
	return processes, warnings
}

// assign completes the environment of a process. If its environ names none, it is in
// the one in which its container was started, or else in that of its nearest registered
// ancestor, provided that this belongs to the process's own user, or the process is
// root's. err is why there may be such an
// ancestor that was not found. It returns why the environment is unknown, or nil.
func (s *observation) assign(inherited *snapshot.Environment, err error) error {
	p := &s.process
	if inherited != nil {
		p.Inherited = inherited.EID
	}
	switch {
	case p.EID != "":
		return nil
	case p.ContainerInfo != nil && p.ContainerInfo.EID != "":
		p.EID, p.EnvUnknown, p.EnvOverwritten = p.ContainerInfo.EID, false, false
		return nil
	case inherited != nil && p.UID != nil && (*p.UID == inherited.UID || *p.UID == 0):
		p.EID, p.EnvUnknown, p.EnvOverwritten = inherited.EID, false, false
		return nil
	case err != nil && !p.EnvUnknown:
		p.EnvUnknown = true
		return fmt.Errorf("whether process %d is in an environment is not known: %w", p.PID, err)
	}
	return s.environErr
}

// inherited returns the environment of the nearest process, among a process and its
// ancestors, that is registered in an environment of its own user. A registered PID
// alone proves nothing, since every user may write any PID into the state files. So
// nothing is inherited from root's processes such as PID 1: all processes descend from
// these, and a user who registered one for root would decide about all users. The
// error says why there may be such an environment that was not found.
func (r *registry) inherited(s *observation) (*snapshot.Environment, error) {
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

// ownerOf returns the user for whom a registered ancestor counts. The error is
// proc.ErrGone if it has ended meanwhile, even if another process has its PID now.
func (r *registry) ownerOf(a proc.Ancestor) (snapshot.UID, error) {
	now, known := r.starts[a.PID]
	if !known {
		stat, err := r.fs.Stat(a.PID)
		now = currentStart{stat.Start, err}
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
	if !ok || r.now.Sub(o.at) >= detailsTTL {
		uid, err := r.fs.Owner(a.PID)
		if err != nil {
			return 0, err
		}
		o = cachedOwner{uid, r.now}
	}
	r.after.owners[a] = o
	return o.uid, nil
}
