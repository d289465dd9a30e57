package order

import (
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// Draft collects the actions on one host while the rules run.
type Draft struct {
	UnderWay UnderWay

	terminations map[snapshot.PID]*Termination
	detachments  map[attachmentKey]*Detachment
	// ending and detaching are actions that aren't due yet, with their earliest time.
	ending    map[snapshot.PID]time.Time
	detaching map[attachmentKey]time.Time
}

// UnderWay are processes and attachments of orders that the host still carries out. The draft doesn't have them.
type UnderWay struct {
	Orders    int // that still run
	ending    map[snapshot.PID]snapshot.StartTime
	detaching map[attachmentKey]bool
}

// Ends reports whether a process is being ended.
func (u *UnderWay) Ends(p *snapshot.Process) bool {
	start, ending := u.ending[p.PID]
	return ending && start == p.Start
}

// Detaches reports whether a device is being taken from an environment.
func (u *UnderWay) Detaches(device snapshot.DeviceIndex, eid snapshot.EnvID) bool {
	return u.detaching[attachmentKey{device, eid}]
}

// Add adds what an order ends and detaches.
func (u *UnderWay) Add(o *Order) {
	if u.ending == nil {
		u.ending, u.detaching = make(map[snapshot.PID]snapshot.StartTime), make(map[attachmentKey]bool)
	}
	for i := range o.Terminate {
		u.ending[o.Terminate[i].Process.PID] = o.Terminate[i].Process.Start
	}
	for i := range o.Detach {
		u.detaching[attachmentKey{o.Detach[i].Device, o.Detach[i].Environment.EID}] = true
	}
}

type attachmentKey struct {
	device snapshot.DeviceIndex
	eid    snapshot.EnvID
}

// Terminate adds the end of a process because of a finding, which may be only about unattached devices.
func (d *Draft) Terminate(p *snapshot.Process, because string, unattached ...snapshot.DeviceIndex) {
	t := item(&d.terminations, p.PID, func() Termination { return Termination{Process: *p, Unattached: unattached} })
	if len(unattached) == 0 {
		t.Unattached = nil
	}
	t.Because = append(t.Because, because)
}

// Terminates reports whether a process ends anyway.
func (d *Draft) Terminates(p *snapshot.Process) bool {
	_, ok := d.terminations[p.PID]
	return ok || d.UnderWay.Ends(p)
}

// EndsBy reports whether a process ends anyway by a time; zero is now.
func (d *Draft) EndsBy(p *snapshot.Process, by time.Time) bool {
	return d.Terminates(p) || isBy(d.ending, p.PID, by)
}

// DetachesBy reports whether an environment loses a device anyway by a time; zero is now.
func (d *Draft) DetachesBy(device snapshot.DeviceIndex, eid snapshot.EnvID, by time.Time) bool {
	key := attachmentKey{device, eid}
	return d.detachments[key] != nil || d.UnderWay.detaching[key] || isBy(d.detaching, key, by)
}

// TakesNothing reports whether nothing of the host ends or is detached anyway, now or later.
func (d *Draft) TakesNothing() bool {
	return d.terminations == nil && d.detachments == nil && d.ending == nil && d.detaching == nil &&
		d.UnderWay.ending == nil
}

func isBy[K comparable](due map[K]time.Time, key K, by time.Time) bool {
	at, ok := due[key]
	return ok && !at.After(by)
}

// ExpectEnd notes when the end of a process is due.
func (d *Draft) ExpectEnd(pid snapshot.PID, at time.Time) { expect(&d.ending, pid, at) }

// ExpectDetach notes when a detachment is due.
func (d *Draft) ExpectDetach(device snapshot.DeviceIndex, eid snapshot.EnvID, at time.Time) {
	expect(&d.detaching, attachmentKey{device, eid}, at)
}

// Drop removes due actions.
func (d *Draft) Drop() { d.terminations, d.detachments = nil, nil }

func expect[K comparable](due *map[K]time.Time, key K, at time.Time) {
	if *due == nil {
		*due = make(map[K]time.Time)
	}
	if before, known := (*due)[key]; !known || at.Before(before) {
		(*due)[key] = at
	}
}

// Detach adds a detachment because of a finding.
func (d *Draft) Detach(device snapshot.DeviceIndex, env *snapshot.Environment, unused bool, because string) {
	x := item(&d.detachments, attachmentKey{device, env.EID}, func() Detachment {
		return Detachment{Device: device, Environment: *env, Unused: unused}
	})
	x.Because = append(x.Because, because)
}

func item[K comparable, V any](items *map[K]*V, key K, made func() V) *V {
	if *items == nil {
		*items = make(map[K]*V)
	}
	if (*items)[key] == nil {
		(*items)[key] = new(made())
	}
	return (*items)[key]
}

// Order returns the draft as an order. lines are those of the findings, by ID.
func (d *Draft) Order(lines map[string]string) Order {
	o := Order{
		Terminate: slices.Grow([]Termination(nil), len(d.terminations)),
		Detach:    slices.Grow([]Detachment(nil), len(d.detachments)),
	}
	for _, t := range d.terminations {
		o.Terminate = append(o.Terminate, *t)
	}
	for _, x := range d.detachments {
		o.Detach = append(o.Detach, *x)
	}
	for _, r := range o.reasons() {
		for _, id := range r.Because {
			r.Why = append(r.Why, lines[id])
		}
	}
	o.Sort()
	return o
}
