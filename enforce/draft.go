package enforce

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// draft collects what is to be done on one host while the rules run.
type draft struct {
	terminations map[snapshot.PID]drafted[snapshot.Process]
	detachments  map[deviceOfEnv]drafted[draftedDetachment]
	underWay     underWay
	// ending and detaching are what is not due yet, with the earliest time when it is.
	ending    map[snapshot.PID]time.Time
	detaching map[deviceOfEnv]time.Time
}

// drafted is a process that is to end, or an environment that is to lose a device, because of
// findings, by their ids.
type drafted[T any] struct {
	object  *T
	because []string
}

// draftedDetachment is that of an environment to a device.
type draftedDetachment struct {
	env    *snapshot.Environment
	unused bool
}

// underWay is what earlier reports are about that the host is still carrying out.
// It need not be in the draft.
type underWay struct {
	reports   int
	ending    map[snapshot.PID]snapshot.StartTime
	detaching map[deviceOfEnv]bool
}

func (u *underWay) ends(p *snapshot.Process) bool {
	start, ending := u.ending[p.PID]
	return ending && start == p.Start
}

func (u *underWay) add(r *Report) {
	if u.ending == nil {
		u.ending, u.detaching = make(map[snapshot.PID]snapshot.StartTime), make(map[deviceOfEnv]bool)
	}
	u.reports++
	for i := range r.Terminate {
		u.ending[r.Terminate[i].Process.PID] = r.Terminate[i].Process.Start
	}
	for i := range r.Detach {
		u.detaching[deviceOfEnv{r.Detach[i].Device, r.Detach[i].Environment.EID}] = true
	}
}

// deviceOfEnv is an attachment on a host.
type deviceOfEnv struct {
	device snapshot.DeviceIndex
	eid    snapshot.EnvID
}

// terminate puts a process into the report because of a finding.
func (d *draft) terminate(p *snapshot.Process, because string) {
	if d.terminations == nil {
		d.terminations = make(map[snapshot.PID]drafted[snapshot.Process])
	}
	before := d.terminations[p.PID]
	d.terminations[p.PID] = drafted[snapshot.Process]{cmp.Or(before.object, p), append(before.because, because)}
}

// terminates reports whether a process ends anyway.
func (d *draft) terminates(p *snapshot.Process) bool {
	_, ok := d.terminations[p.PID]
	return ok || d.underWay.ends(p)
}

// endsBy reports whether a process ends anyway, or will by a time; the zero time is now.
func (d *draft) endsBy(p *snapshot.Process, by time.Time) bool {
	return d.terminates(p) || isBy(d.ending, p.PID, by)
}

// detachesBy reports whether an environment loses a device anyway, or will by a time; the zero
// time is now.
func (d *draft) detachesBy(device snapshot.DeviceIndex, eid snapshot.EnvID, by time.Time) bool {
	return d.detaches(device, eid) || isBy(d.detaching, deviceOfEnv{device, eid}, by)
}

func isBy[K comparable](due map[K]time.Time, key K, by time.Time) bool {
	at, ok := due[key]
	return ok && !at.After(by)
}

// expect notes when something will be due.
func expect[K comparable](due *map[K]time.Time, key K, at time.Time) {
	if *due == nil {
		*due = make(map[K]time.Time)
	}
	if before, known := (*due)[key]; !known || at.Before(before) {
		(*due)[key] = at
	}
}

// detach puts a detachment into the report because of a finding.
func (d *draft) detach(device snapshot.DeviceIndex, env *snapshot.Environment, unused bool, because string) {
	if d.detachments == nil {
		d.detachments = make(map[deviceOfEnv]drafted[draftedDetachment])
	}
	key := deviceOfEnv{device, env.EID}
	before := d.detachments[key]
	d.detachments[key] = drafted[draftedDetachment]{cmp.Or(before.object, &draftedDetachment{env, unused}), append(before.because, because)}
}

// detaches reports whether an environment loses a device anyway.
func (d *draft) detaches(device snapshot.DeviceIndex, eid snapshot.EnvID) bool {
	_, ok := d.detachments[deviceOfEnv{device, eid}]
	return ok || d.underWay.detaching[deviceOfEnv{device, eid}]
}

// report is the draft as a report. The lines are those of the findings, by their ids.
func (d *draft) report(lines map[string]string) Report {
	r := Report{Terminate: slices.Grow([]Termination(nil), len(d.terminations)), Detach: slices.Grow([]Detachment(nil), len(d.detachments))}
	for _, t := range d.terminations {
		r.Terminate = append(r.Terminate, Termination{Process: *t.object, Because: t.because, Why: linesOf(t.because, lines)})
	}
	for key, x := range d.detachments {
		r.Detach = append(r.Detach, Detachment{Device: key.device, Environment: *x.object.env, Unused: x.object.unused, Because: x.because, Why: linesOf(x.because, lines)})
	}
	r.Sort()
	return r
}

func linesOf(ids []string, lines map[string]string) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		list[i] = lines[id]
	}
	return list
}
