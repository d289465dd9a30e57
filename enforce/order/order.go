// Package order has what one host has to do about findings (Order), the result (Outcome), and the formats in which
// controllers send orders to hosts: that of genv 1.4.3, and our own, which has all that is known of processes.
//
//	var d order.Draft // while rules are applied
//	d.Terminate(process, findingID)
//	data, err := order.EncodeNative(d.Order(lines))
//	o, err := order.DecodeNative(data)
//
// All input is checked. An error wraps snapshot.ErrInvalid, and then nothing may be carried out.
package order

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Order is what one host has to do: first detach, so that no process starts there again, then terminate.
type Order struct {
	Terminate []Termination // in ascending order of PID
	Detach    []Detachment  // in order of device, then environment

	Options

	// GPUs are known UUIDs of its devices: the host skips an index that moved. Not for 1.4.3.
	GPUs map[snapshot.DeviceIndex]snapshot.GPUUUID

	ID string // what the controller's log calls it; empty for none
}

// OfHost is the order of one host.
type OfHost struct {
	Host  snapshot.Hostname
	Order Order
}

// Termination names a process as judged: PID, start time, devices, environment. No other one is signalled.
type Termination struct {
	Process snapshot.Process
	Reasons

	// Unattached are the only devices for which it ends, unless they are attached to its environment by then.
	Unattached []snapshot.DeviceIndex

	Counted         bool  // it ends for what its account uses, whatever its environment is
	InNoEnvironment *bool // the answer of Outside; nil if the controller did not send it
}

// Detachment takes a device from an environment.
type Detachment struct {
	Device      snapshot.DeviceIndex
	Environment snapshot.Environment
	Unused      bool // it was judged to be used by nothing of the environment or its user: a host checks that again
	Reasons
}

// Reasons are why an item is in an order.
type Reasons struct {
	Because []string // ids of the findings
	Why     []string // the findings as people read them
	Judged  []string // the lines of the snapshot that were judged: see audit.Explain
}

// Name sets GPUs from the devices of the host.
func (o *Order) Name(devices []snapshot.Device) {
	named := make(map[snapshot.DeviceIndex]bool)
	for i := range o.Terminate {
		for _, u := range o.Terminate[i].Process.Usage {
			named[u.Index] = true
		}
	}
	for i := range o.Detach {
		named[o.Detach[i].Device] = true
	}
	o.GPUs = make(map[snapshot.DeviceIndex]snapshot.GPUUUID, len(named))
	for i := range devices {
		if d := &devices[i]; named[d.Index] && d.UUID != "" {
			o.GPUs[d.Index] = d.UUID
		}
	}
}

// Empty reports whether nothing is to do.
func (o Order) Empty() bool { return len(o.Terminate) == 0 && len(o.Detach) == 0 }

// Sort sorts the items.
func (o *Order) Sort() {
	slices.SortFunc(o.Terminate, func(a, b Termination) int { return cmp.Compare(a.Process.PID, b.Process.PID) })
	slices.SortFunc(o.Detach, func(a, b Detachment) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Environment.EID, b.Environment.EID))
	})
}

// String is the line that 1.4.3 prints when it signals the process.
func (t Termination) String() string { return "Terminating " + t.Object() }

// Raw is String exactly as 1.4.3 prints it, with the claimed ID: for comparisons, not for display.
func (t Termination) Raw() string {
	return "Terminating " + t.objectFrom(cmp.Or(string(t.Process.EID), snapshot.NoEnvironment))
}

// Object is the process in words. The environment is "N/A" if the process ends for being in none.
func (t Termination) Object() string {
	if t.Outside() {
		return t.objectFrom(snapshot.NoEnvironment)
	}
	return t.objectFrom(t.Process.EID.Shown())
}

func (t Termination) objectFrom(environment string) string {
	p := &t.Process
	return fmt.Sprintf("process %d from environment %s that is running on GPU(s) %s",
		p.PID, environment, text.JoinIndices(p.Indices()))
}

// String is the line that 1.4.3 prints when it removes the attachment.
func (d Detachment) String() string { return "Detaching " + d.Object() }

// Raw is String exactly as 1.4.3 prints it, with unescaped names: for comparisons, not for display.
func (d Detachment) Raw() string {
	return "Detaching " + d.objectOf(func(name string) string { return name })
}

// Object is the attachment in words.
func (d Detachment) Object() string { return d.objectOf(text.Shown) }

func (d Detachment) objectOf(show func(string) string) string {
	e := &d.Environment
	user := cmp.Or(string(e.Username), fmt.Sprint(e.UID))
	return fmt.Sprintf("environment %s of user %s from device %s", show(string(e.EID)), show(user), d.Device)
}

// Outside reports whether the process ends for being in no environment: for 1.4.3, if it has no ID.
func (t *Termination) Outside() bool {
	if t.InNoEnvironment != nil {
		return *t.InNoEnvironment
	}
	if len(t.Because) == 0 {
		return t.Process.EID == ""
	}
	return slices.ContainsFunc(t.Because, func(id string) bool { return strings.HasPrefix(id, RuleOutside+"/") })
}

// MayBeJudged reports whether enough was known of the process's environment.
func (t *Termination) MayBeJudged() bool {
	p := &t.Process
	return t.Counted || !p.EnvUnknown || p.EID == "" && (p.EnvOverwritten || p.Unreadable.IsByUser())
}

// RuleOutside is the rule about processes in no environment.
const RuleOutside = "non-env-processes"

// Outcome is the result of a termination (PID is set) or a detachment (Device and EID are).
type Outcome struct {
	PID    snapshot.PID         `json:"pid,omitempty"`
	Device snapshot.DeviceIndex `json:"device"`
	EID    snapshot.EnvID       `json:"eid,omitempty"`
	Status OutcomeStatus        `json:"status"`
	Reason string               `json:"reason,omitempty"` // plain English, for refused, changed and failed
}

// ItemOf returns the item of an outcome; nil, nil if the order doesn't have it.
func (o *Order) ItemOf(outcome Outcome) (*Termination, *Detachment) {
	if outcome.PID != 0 {
		return snapshot.Find(o.Terminate, func(t *Termination) bool { return t.Process.PID == outcome.PID }), nil
	}
	return nil, snapshot.Find(o.Detach, func(d *Detachment) bool {
		return d.Device == outcome.Device && d.Environment.EID == outcome.EID
	})
}
