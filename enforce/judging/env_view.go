package judging

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// EnvView is a registered environment with its processes and attachments.
type EnvView struct {
	Env         *snapshot.Environment
	Host        *HostView
	Began       time.Time         // its age counts from then
	Settings    *enforce.Settings // of its user here
	Person      snapshot.Username // the person who uses its GPUs
	Processes   []*snapshot.Process
	Attachments []Attachment

	exempt    bool
	exemptUse map[snapshot.DeviceIndex]Certainty // use by exempt processes: see ExemptUse
	// desktopUse is by processes that draw on a screen. Rules still judge attachments to such a device.
	desktopUse map[snapshot.DeviceIndex]Certainty
}

// Attachment is an attachment with its device.
type Attachment struct {
	*snapshot.Attachment
	Device *snapshot.Device
	Began  time.Time // its age counts from then
}

// UID is the owner of the environment; nil if its state file is contradictory.
func (v *EnvView) UID() *snapshot.UID {
	if v.Env.OwnerMismatch {
		return nil
	}
	return &v.Env.UID
}

// Attached reports whether the environment is attached to a device.
func (v *EnvView) Attached(index snapshot.DeviceIndex) bool {
	return slices.ContainsFunc(v.Attachments, func(a Attachment) bool { return a.Device.Index == index })
}

// ExemptUse is what exempt processes prove about the use of a device. No cap takes such a device.
func (v *EnvView) ExemptUse(index snapshot.DeviceIndex) Certainty { return v.exemptUse[index] }

func (v *EnvView) with(uses map[snapshot.DeviceIndex]Certainty, p *snapshot.Process, least Certainty,
) map[snapshot.DeviceIndex]Certainty {
	if uses == nil {
		uses = make(map[snapshot.DeviceIndex]Certainty)
	}
	for _, u := range p.Usage {
		uses[u.Index] = max(uses[u.Index], least, UseBy(v.Env.UID, p))
	}
	return uses
}

// On are the processes on a device.
func (v *EnvView) On(index snapshot.DeviceIndex) iter.Seq[*snapshot.Process] {
	return func(yield func(*snapshot.Process) bool) {
		for _, p := range v.Processes {
			if p.Uses(index) != nil && !yield(p) {
				return
			}
		}
	}
}

// Certainty is how certain it is that a user uses a device.
type Certainty int8

// The certainties, the weakest first.
const (
	Unused   Certainty = iota
	Reported           // by a process of root, of an unproved container, or without a uid
	Proven             // by a process of the user's uid
)

// UseBy says what a process on a device proves about its use by an environment's owner.
func UseBy(owner snapshot.UID, p *snapshot.Process) Certainty {
	switch {
	case p.UID == nil || *p.CountsForUID() == 0:
		return Reported
	case *p.CountsForUID() == owner:
		return Proven
	}
	return Unused
}

// Cost is what the user loses with the devices: 0 for none, 1 without processes, more for better proven use.
func (v *EnvView) Cost() int8 {
	if len(v.Attachments) == 0 {
		return 0
	}
	most := Unused
	for _, p := range v.Processes {
		most = max(most, UseBy(v.Env.UID, p))
	}
	return 1 + int8(most)
}

// Used is how many bytes the processes on a device use, and the number of processes without a figure of the driver.
func (v *EnvView) Used(index snapshot.DeviceIndex) (used int64, unknown int) {
	for p := range v.On(index) {
		if u := p.Uses(index); u.Memory.Known() {
			used += u.Memory.Bytes()
		} else {
			unknown++
		}
	}
	return used, unknown
}

// Excess is use beyond an environment's capacity on a device.
type Excess struct {
	Used   int64               // in bytes
	Ending []*snapshot.Process // to end for it; empty without an excess
}

// Relieve chooses the processes on a device that have to end so that the others use at most capacity bytes together. It
// includes pending ones, which end anyway or can't be ended: no others end in their place. Processes without a figure
// of the driver never end.
//
// Any user may start a container for another user's environment. So processes without a proved user end for the excess
// of all together, and proved ones only for the excess of proved ones.
func (v *EnvView) Relieve(index snapshot.DeviceIndex, capacity int64, pending func(*snapshot.Process) bool) (
	proved, unproved Excess,
) {
	bytes := func(p *snapshot.Process) int64 { return p.Uses(index).Memory.Bytes() }
	var own, others []*snapshot.Process
	for p := range v.On(index) {
		if !p.Uses(index).Memory.Known() {
			continue
		}
		unproved.Used += bytes(p)
		if p.StartedByUnknown() {
			others = append(others, p)
			continue
		}
		own = append(own, p)
		proved.Used += bytes(p)
	}
	proved.Ending = free(own, bytes, proved.Used-capacity, pending)
	unproved.Ending = free(others, bytes, unproved.Used-capacity, pending)
	return proved, unproved
}

// Container is the container of all ending processes; empty for none or several.
func (e Excess) Container() (id string, info *snapshot.ContainerInfo) {
	for i, p := range e.Ending {
		if i > 0 && p.Container != id {
			return "", nil
		}
		id, info = p.Container, p.ContainerInfo.WithoutLabels()
	}
	if info != nil {
		info.Init = false // which is about one process
	}
	return id, info
}

// free chooses processes that free excess bytes: first the pending ones, then one by one the smallest that alone frees
// the rest or, without one, the largest. Ties go to the higher PID, most often the younger process.
func free(processes []*snapshot.Process, bytes func(*snapshot.Process) int64, excess int64,
	pending func(*snapshot.Process) bool,
) (ended []*snapshot.Process) {
	if excess <= 0 {
		return nil
	}
	var rest []*snapshot.Process
	for _, p := range processes {
		if pending(p) {
			excess -= bytes(p)
			ended = append(ended, p)
		} else {
			rest = append(rest, p)
		}
	}
	slices.SortFunc(rest, func(a, b *snapshot.Process) int { // ascending, and the higher PID first
		return cmp.Or(cmp.Compare(bytes(a), bytes(b)), cmp.Compare(b.PID, a.PID))
	})
	for excess > 0 && len(rest) > 0 {
		enough := min(excess, bytes(rest[len(rest)-1]))
		i := slices.IndexFunc(rest, func(p *snapshot.Process) bool { return bytes(p) >= enough })
		ended = append(ended, rest[i])
		excess -= bytes(rest[i])
		rest = slices.Delete(rest, i, i+1)
	}
	return ended
}
