package user

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// inUseTimeout is how long nvidia-smi may take to say which devices are in use.
// Without its answer devices are attached in the order of 1.4.3.
const inUseTimeout = 2 * time.Second

// inUse are the processes that use devices and are not in the caller's environment;
// none if nvidia-smi takes too long.
type inUse struct {
	processes []snapshot.Process
	// hidden are the devices that a guard hides from the caller: they may be in use.
	hidden []snapshot.DeviceIndex
}

// inUseByOthers runs nvidia-smi, so it must not be called with the lock held.
func (w *person) inUseByOthers(ctx context.Context, eid snapshot.EnvID, uid snapshot.UID) inUse {
	ctx, cancel := context.WithTimeout(ctx, inUseTimeout)
	defer cancel()
	processes, _, err := w.Machine.Processes(ctx)
	if err != nil {
		return inUse{}
	}
	processes = slices.DeleteFunc(processes, func(p snapshot.Process) bool {
		return eid != "" && p.EID == eid && p.UID != nil && *p.UID == uid
	})
	return inUse{processes: processes, hidden: w.Machine.Hidden()}
}

// devices are those that are in use, for change.Attach.Busy.
func (u inUse) devices() []snapshot.DeviceIndex {
	var busy []snapshot.DeviceIndex
	for i := range u.processes {
		busy = append(busy, u.processes[i].Indices()...)
	}
	slices.Sort(busy)
	return slices.Compact(busy)
}

// maxInUse is how many processes are named.
const maxInUse = 8

// warnings name the processes that use the devices that were attached.
func (u inUse) warnings(ctx context.Context, attached []snapshot.DeviceIndex) []string {
	var lines []string
	more := 0
	for i := range u.processes {
		for _, usage := range u.processes[i].Usage {
			switch {
			case !slices.Contains(attached, usage.Index):
			case len(lines) == maxInUse:
				more++
			default:
				lines = append(lines, inUseLine(ctx, &u.processes[i], usage))
			}
		}
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("Warning: and %d more; `nvidia-smi` shows them", more))
	}
	unknown := slices.DeleteFunc(slices.Clone(attached), func(i snapshot.DeviceIndex) bool { return !slices.Contains(u.hidden, i) })
	if len(unknown) > 0 {
		lines = append(lines, fmt.Sprintf("It is unknown whether other processes use GPU %s: a guard hid them from you; nvidia-smi shows them from now on", text.JoinIndices(unknown)))
	}
	return lines
}

func inUseLine(ctx context.Context, p *snapshot.Process, usage snapshot.DeviceUsage) string {
	s := fmt.Sprintf("Warning: GPU %d is in use by process %d", usage.Index, p.PID)
	if p.UID != nil {
		s += " of " + owner(*p.UID, string(system.Users{}.Username(ctx, *p.UID)))
	}
	if command := cmp.Or(p.Command, p.Name); command != "" {
		s += ": " + text.ShownCommand(command)
	}
	if usage.Memory.Known() {
		s += fmt.Sprintf(", with %s", usage.Memory)
	}
	return s
}

// reportAttached prints the devices of an environment, and which processes use those
// that are new: to stderr, so that no script reads it as output.
func (p *program) reportAttached(ctx context.Context, others inUse, before, now []snapshot.DeviceIndex) {
	if len(now) > 0 {
		p.Warn("Attached GPUs: " + text.JoinIndices(now))
	}
	p.Warn(others.warnings(ctx, without(now, before))...)
}

// without are the devices of a list that are not on another.
func without(list, other []snapshot.DeviceIndex) []snapshot.DeviceIndex {
	return slices.DeleteFunc(slices.Clone(list), func(i snapshot.DeviceIndex) bool { return slices.Contains(other, i) })
}
