package controller

import (
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// row is what an action is about, in the last snapshot of its host: a process, or an
// attachment and its environment.
type row struct {
	host        *snapshot.Host
	process     *snapshot.Process
	device      snapshot.DeviceIndex
	environment *snapshot.Environment // of the process, if it is registered there
}

const (
	lookAgain = "Look again: the view shows what is there now."
	tryLater  = "Try again after the next cycle."
)

func changed(format string, args ...any) error {
	return operator.Refuse(operator.Changed, lookAgain, format, args...)
}

// oldestLook is how old a snapshot may be to act on, at least: of the last cycle if cycles
// are rare. Each host has its own: an early cycle makes that of no other one newer.
const oldestLook = 30 * time.Second

// row finds what an action is about. It refuses what is not, or no longer, what the person
// saw.
func (c *Controller) row(a *operator.Action) (*row, error) {
	switch {
	case c.last == nil:
		return nil, operator.Refuse(operator.Unable, tryLater, "the first cycle has not ended yet")
	case c.reloaded:
		return nil, operator.Refuse(operator.Unable, tryLater, "the hosts were read again, and have not been asked since")
	}
	if age := c.Now().Sub(c.last.taken(a.Host)); age > max(oldestLook, 2*c.interval) || age < 0 {
		return nil, operator.Refuse(operator.Unable, tryLater, "what is known of the host is from %s ago", age.Round(time.Second))
	}
	at := slices.IndexFunc(c.last.Cluster.Hosts, func(h snapshot.Host) bool { return h.Name == a.Host })
	if at < 0 {
		return nil, changed("host %s is not in the fleet", snapshot.EnvID(a.Host).Shown())
	}
	h := &c.last.Cluster.Hosts[at]
	if h.Err != nil || h.Snapshot == nil {
		return nil, operator.Refuse(operator.Unable, "Wait until the host answers again.", "host %s did not answer: %v", h.Name, h.Err)
	}
	r := &row{host: h}
	if a.PID != 0 {
		return r, r.findProcess(a)
	}
	return r, r.findAttachment(a)
}

func (r *row) findProcess(a *operator.Action) error {
	s := r.host.Snapshot
	at := slices.IndexFunc(s.Processes, func(p snapshot.Process) bool { return p.PID == a.PID })
	if at < 0 {
		return changed("process %d no longer uses a GPU of host %s", a.PID, r.host.Name)
	}
	p := &s.Processes[at]
	switch {
	case p.Start != a.Start:
		return changed("process %d of host %s is another one now: it started at another time", a.PID, r.host.Name)
	case len(p.Usage) == 0 || a.Device != nil && p.Uses(*a.Device) == nil:
		return changed("process %d no longer uses that GPU of host %s", a.PID, r.host.Name)
	case a.Device != nil && otherGPU(s.Device(*a.Device), a.UUID):
		return changed("GPU %s of host %s is another GPU now", a.Device, r.host.Name)
	case a.EID != "" && p.EID != a.EID:
		return changed("process %d of host %s is in environment %s now", a.PID, r.host.Name, p.EID.Shown())
	}
	r.process = p
	if env := s.Environment(p.EID); env != nil && env.Admits(p.UID) {
		r.environment = env
	}
	return r.checkUser(a, gpus.Owner(p, r.environment))
}

// otherGPU reports whether a device is known not to be the GPU that the person saw.
func otherGPU(d *snapshot.Device, seen snapshot.GPUUUID) bool {
	return d != nil && d.UUID != "" && seen != "" && d.UUID != seen
}

func (r *row) findAttachment(a *operator.Action) error {
	s := r.host.Snapshot
	d, env := s.Device(*a.Device), s.Environment(a.EID)
	if d == nil || env == nil || d.Attachment(a.EID) == nil {
		return changed("GPU %s of host %s is no longer attached to environment %s", a.Device, r.host.Name, a.EID.Shown())
	}
	if otherGPU(d, a.UUID) {
		return changed("GPU %s of host %s is another GPU now", a.Device, r.host.Name)
	}
	r.device, r.environment = d.Index, env
	return r.checkUser(a, gpus.UserName(env.Username, &env.UID))
}

// checkUser refuses an action if its author saw another user: an environment's id may be
// used again.
func (r *row) checkUser(a *operator.Action, is snapshot.Username) error {
	if a.User != is {
		return changed("the user on host %s is %s, and not %s", r.host.Name, snapshot.EnvID(is).Shown(), snapshot.EnvID(a.User).Shown())
	}
	return nil
}

// subject is what exemptions are asked about.
func (r *row) subject() enforce.Subject {
	if r.process != nil {
		return enforce.Subject{Host: r.host.Name, Process: r.process, Environment: r.environment}
	}
	return enforce.Subject{Host: r.host.Name, Environment: r.environment, User: r.environment.Username, Device: r.host.Snapshot.Device(r.device)}
}

// uid is the user to warn; false if it is not known.
func (r *row) uid() (snapshot.UID, bool) {
	switch {
	case r.process != nil:
		if _, uid := r.process.Reported(); uid != nil {
			return *uid, true
		}
	case !r.environment.OwnerMismatch:
		return r.environment.UID, true
	}
	return 0, false
}

// user is the name of the user to warn, as notices to others have it; empty if the host
// doesn't report it.
func (r *row) user(uid snapshot.UID) snapshot.Username {
	return notify.NewOwners(snapshot.Cluster{Hosts: []snapshot.Host{*r.host}}).Name(r.host.Name, uid)
}

// String names what an action is about.
func (r *row) String() string {
	if p := r.process; p != nil {
		return fmt.Sprintf("process %d%s", p.PID, p.Describe())
	}
	return fmt.Sprintf("device %s of environment %s", r.device, r.environment.EID.Shown())
}
