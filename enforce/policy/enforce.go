package policy

import (
	"fmt"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

var _ enforce.Policy = (*File)(nil)

// Settings implements enforce.Policy.
func (f *File) Settings(q enforce.Query) enforce.Settings {
	s := f.Resolve(q)
	settings := enforce.Settings{
		NonEnvProcesses: s.NonEnvProcesses.On,
		EnvDevices:      s.EnvDevices.On,
		EnvMemory:       s.EnvMemory.On,
		MaxDevices:      s.MaxDevices.pointer(),
		MaxEnvs:         s.MaxEnvs.pointer(),
		Idle:            s.Idle.pointer(),
		MaxDuration:     s.MaxDuration.Value,
		Warn:            s.Warn.Value,
		Grace:           s.Grace.Value,
		Kill:            s.Kill.On,
	}
	if s.MaxMemory.On {
		bytes := s.MaxMemory.Value.Bytes()
		settings.MaxMemory = &bytes
	}
	return settings
}

// pointer is the value, or nil if it does not hold.
func (v Value[T]) pointer() *T {
	if !v.On {
		return nil
	}
	return &v.Value
}

// Fleet implements enforce.Policy.
func (f *File) Fleet() enforce.Fleet {
	return enforce.Fleet{
		HoldCaps:  f.Unreachable.Value == Hold,
		TellUsers: f.TellUsers.On, Unprotected: f.Unprotected,
		Limits: enforce.Limits{MaxTerminations: f.Limits.MaxTerminations.Value, MaxPercent: f.Limits.MaxPercent.Value},
	}
}

// Exempt implements enforce.Policy. The reason is what is exempt, and where it
// says so. A process in the environment of another user is not exempt for that
// user's sake; where the host did not tell whose the process is, it is.
//
// Without a Device in the subject, a process is exempt for its devices only if
// all of them are: work on an exempt device is no licence for the others.
func (f *File) Exempt(s enforce.Subject) (reason string, exempt bool) {
	e, o := &f.Exemptions, ownerOf(s)
	if from, ok := e.Host(s.Host); ok {
		return fmt.Sprintf("host %s: %s", s.Host, from), true
	}
	if from, ok := e.User(o.user); ok {
		return fmt.Sprintf("user %s: %s", o.user, from), true
	}
	if o.uid != nil {
		if from, ok := e.UID(*o.uid); ok {
			return fmt.Sprintf("uid %d: %s", *o.uid, from), true
		}
	}
	if s.Process != nil {
		if from, ok := e.Process(s.Process.Name, o.user); ok {
			return fmt.Sprintf("process %s: %s", s.Process.Name, from), true
		}
	}
	if env := o.environment; env != nil {
		if from, ok := e.Environment(s.Host, env.EID, env.Username, env.Config.Name); ok {
			return fmt.Sprintf("environment %s: %s", env.EID, from), true
		}
	}
	if from, ok := e.devicesOf(s); ok {
		return fmt.Sprintf("device: %s", from), true
	}
	return "", false
}

// owner is whose a subject is. What nobody knows is empty.
type owner struct {
	user        snapshot.Username
	uid         *snapshot.UID
	environment *snapshot.Environment // nil if it is not the owner's
}

func ownerOf(s enforce.Subject) owner {
	o := owner{environment: s.Environment}
	if o.environment != nil && o.environment.OwnerMismatch {
		o.environment = nil // whoever wrote its books could have written any name
	}
	switch {
	case s.Process != nil:
		o.uid = s.Process.UID
	case o.environment != nil:
		o.uid = &o.environment.UID
	}
	if o.environment != nil && o.uid != nil && *o.uid != o.environment.UID {
		o.environment = nil // a claim to the environment of another
	}
	switch {
	case o.environment != nil:
		o.user = o.environment.Username
	case s.Process != nil && s.Process.Username != "":
		o.user = s.Process.Username
	case o.uid != nil && *o.uid == 0:
		o.user = "root"
	}
	return o
}

// devicesOf says whether the device of a subject is exempt, or all of those that
// its process uses.
func (e *Exemptions) devicesOf(s enforce.Subject) (from Source, ok bool) {
	if s.Device != nil {
		return e.Device(s.Host, s.Device.Index, s.Device.UUID)
	}
	if s.Process == nil {
		return Source{}, false
	}
	for _, usage := range s.Process.Usage {
		if from, ok = e.Device(s.Host, usage.Index, ""); !ok {
			return Source{}, false
		}
	}
	return from, ok
}
