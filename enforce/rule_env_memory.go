package enforce

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/enforce/contents"
	"github.com/seed-3119e985/genv/snapshot"
)

// envMemory brings every environment within its capacity on each device, in the
// order of the devices.
func (j *judgement) envMemory(h *hostView) {
	if !h.settings.EnvMemory {
		return
	}
	for _, env := range h.inOrder {
		byDevice := func(a, b contents.Attachment) int { return cmp.Compare(a.Device.Index, b.Device.Index) }
		attachments := env.Attachments
		if !slices.IsSortedFunc(attachments, byDevice) { // hosts list their devices in order, but need not
			attachments = slices.SortedFunc(slices.Values(attachments), byDevice)
		}
		for _, a := range attachments {
			if a.GPUMemory.Known() {
				j.envMemoryOn(h, env, a)
			}
		}
	}
}

func (j *judgement) envMemoryOn(h *hostView, env *envView, a contents.Attachment) {
	index := a.Device.Index
	usages, used, unknown := env.usages(index)
	excess := used - a.GPUMemory.Bytes()
	if excess <= 0 {
		if unknown > 0 {
			j.note(h, "how much memory %d processes of environment %s use on device %d is not known, so its capacity is not judged", unknown, env.env.EID.Shown(), index)
		}
		return
	}
	f := Finding{
		ID:   fmt.Sprintf("%s/%s/%s/%d", RuleEnvMemory, h.name, env.env.EID, index),
		Rule: RuleEnvMemory, Host: h.name, EID: env.env.EID, User: env.env.Username, UID: env.uid(),
		Devices: []snapshot.DeviceIndex{index},
		Memory:  &MemoryExcess{UsedBytes: used, CapacityBytes: a.GPUMemory.Bytes(), Capacity: a.GPUMemory.String()},
	}
	ending := j.relieve(h, usages, excess)
	due := j.checkDue(&f, env.settings.Warn, f.ID)
	for _, p := range ending {
		j.end(&f, due, h, p)
	}
	j.add(f)
}

// memoryUsage is a process with what it uses on the device in question.
type memoryUsage struct {
	process *snapshot.Process
	bytes   int64
}

// usages lists the environment's processes on a device, what they use
// together, and for how many of them the driver reports no figure.
func (v *envView) usages(index snapshot.DeviceIndex) (usages []memoryUsage, used int64, unknown int) {
	for p := range v.On(index) {
		if u := p.Uses(index); u.Memory.Known() {
			usages = append(usages, memoryUsage{p, u.Memory.Bytes()})
			used += u.Memory.Bytes()
		} else {
			unknown++
		}
	}
	return usages, used, unknown
}

// relieve chooses processes that free excess bytes together. What the report
// ends anyway counts as freed, and so does what cannot be ended: no other process
// ends in its place. Then goes the smallest process that alone frees
// enough; while none does, the largest. Ties go to the higher PID, which is
// most often the younger process.
func (j *judgement) relieve(h *hostView, usages []memoryUsage, excess int64) []*snapshot.Process {
	var ended []*snapshot.Process
	var rest []memoryUsage
	for _, x := range usages {
		if _, stuck := j.stuckBecause(h, x.process); stuck || h.draft.terminates(x.process) {
			excess -= x.bytes
			ended = append(ended, x.process)
		} else {
			rest = append(rest, x)
		}
	}
	slices.SortFunc(rest, func(a, b memoryUsage) int { // ascending, and the higher PID first
		return cmp.Or(cmp.Compare(a.bytes, b.bytes), cmp.Compare(b.process.PID, a.process.PID))
	})
	for excess > 0 && len(rest) > 0 {
		i := nextToEnd(rest, excess)
		ended = append(ended, rest[i].process)
		excess -= rest[i].bytes
		rest = slices.Delete(rest, i, i+1)
	}
	return ended
}

// nextToEnd is the position of the smallest that frees enough, or else of the
// largest with the highest PID.
func nextToEnd(ascending []memoryUsage, excess int64) int {
	enough := min(excess, ascending[len(ascending)-1].bytes)
	i, _ := slices.BinarySearchFunc(ascending, enough, func(x memoryUsage, want int64) int { return cmp.Compare(x.bytes, want) })
	return i
}
