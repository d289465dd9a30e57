package user

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/state/system"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// inUseTimeout is how long a look at the devices that are in use may take. Without it
// devices are attached in the order of 1.4.3.
const inUseTimeout = 2 * time.Second

// inUse is what is known of processes that are not in the caller's environment.
type inUse struct {
	uses []use
	// unknown are the devices of which it is unknown whether they are in use, and why says
	// the reason. If failed is set, these are all devices.
	unknown []snapshot.DeviceIndex
	failed  bool
	why     string
	// ailing are the devices that have failed.
	ailing []snapshot.DeviceIndex
}

// use is a process on a device.
type use struct {
	index   snapshot.DeviceIndex
	process gpus.Process
}

// inUseByOthers may run nvidia-smi, so it must not be called with the lock held.
func (w *person) inUseByOthers(ctx context.Context, eid snapshot.EnvID, uid snapshot.UID) inUse {
	within, cancel := context.WithTimeout(ctx, inUseTimeout)
	defer cancel()
	look := w.ownLook
	if !w.Store.MayWrite() {
		look = w.rootsLook
	}
	seen, err := look(within)
	switch {
	case err != nil && errors.Is(within.Err(), context.DeadlineExceeded):
		return inUse{failed: true, why: fmt.Sprintf("there was no answer within %s", inUseTimeout)}
	case err != nil:
		return inUse{failed: true, why: err.Error()}
	}
	user := userName(ctx, &uid)
	seen.uses = slices.DeleteFunc(seen.uses, func(u use) bool {
		return eid != "" && u.process.EID == eid && u.process.User == user
	})
	return seen
}

const driverIsSilent = "the driver doesn't say; `genv gpus` shows what is known"

// ownLook is what this user's nvidia-smi and /proc show. A guard may hide devices.
func (w *person) ownLook(ctx context.Context) (inUse, error) {
	processes, _, err := w.Machine.Processes(ctx)
	if err != nil {
		return inUse{}, err
	}
	problems, err := w.Machine.Problems(ctx)
	if err != nil {
		return inUse{}, err
	}
	seen := inUse{unknown: w.Machine.Hidden(), why: "a guard hid them from you; nvidia-smi shows them from now on"}
	for _, d := range problems {
		if d.Failed {
			seen.ailing = append(seen.ailing, d.Index)
		} else {
			seen.unknown, seen.why = append(slices.Clone(seen.unknown), d.Index), fmt.Sprintf("the driver reports %s", d.Problem)
		}
	}
	if unreported := w.Machine.Unreported(); len(unreported) > 0 {
		seen.unknown, seen.why = append(slices.Clone(seen.unknown), unreported...), driverIsSilent
	}
	for i := range processes {
		p := &processes[i]
		for _, usage := range p.Usage {
			found := gpus.Process{PID: p.PID, User: userName(ctx, p.UID), EID: p.EID, Command: p.CommandOrName()}
			if usage.Memory.Known() {
				bytes := usage.Memory.Bytes()
				found.Memory = &bytes
			}
			seen.uses = append(seen.uses, use{usage.Index, found})
		}
	}
	return seen, nil
}

// rootsLook is what root's service sees, from which a guard hides nothing.
func (w *person) rootsLook(ctx context.Context) (inUse, error) {
	document, err := w.Service.Look(ctx, "gpus")
	if err != nil {
		return inUse{}, err
	}
	var list []gpus.GPU
	if err := json.Unmarshal(document, &list); err != nil {
		return inUse{}, fmt.Errorf("the service gave an answer that is not understood: %w", err)
	}
	seen := inUse{why: driverIsSilent}
	for i := range list {
		g := &list[i]
		switch g.State {
		case gpus.Failed:
			seen.ailing = append(seen.ailing, g.Index)
		case gpus.Unknown:
			seen.unknown = append(seen.unknown, g.Index)
		case gpus.Free, gpus.Attached, gpus.Idle, gpus.Busy:
		}
		for _, p := range g.Processes {
			seen.uses = append(seen.uses, use{g.Index, p})
		}
	}
	return seen, nil
}

// userName is the name of a user as the service and the state files have it.
func userName(ctx context.Context, uid *snapshot.UID) snapshot.Username {
	if uid == nil {
		return ""
	}
	return gpus.UserName(system.Users{}.Username(ctx, *uid), uid)
}

// devices are those that are in use or may be, for change.Attach.Busy.
func (u inUse) devices() []snapshot.DeviceIndex {
	busy := slices.Clone(u.unknown)
	for i := range u.uses {
		busy = append(busy, u.uses[i].index)
	}
	slices.Sort(busy)
	return slices.Compact(busy)
}

// maxInUse is how many processes are named.
const maxInUse = 8

// warnings name the processes that use the devices that were attached.
func (u inUse) warnings(attached []snapshot.DeviceIndex) []string {
	var lines []string
	more := 0
	for i := range u.uses {
		switch {
		case !slices.Contains(attached, u.uses[i].index):
		case len(lines) == maxInUse:
			more++
		default:
			lines = append(lines, u.uses[i].line())
		}
	}
	if more > 0 {
		lines = append(lines, fmt.Sprintf("Warning: and %d more; `genv gpus` shows them", more))
	}
	unknown := slices.DeleteFunc(slices.Clone(attached), func(i snapshot.DeviceIndex) bool { return !u.failed && !slices.Contains(u.unknown, i) })
	if len(unknown) > 0 {
		lines = append(lines, fmt.Sprintf("It is unknown whether other processes use GPU %s: %s", text.JoinIndices(unknown), u.why))
	}
	return lines
}

func (u *use) line() string {
	p := &u.process
	s := fmt.Sprintf("Warning: GPU %d is in use by process %d", u.index, p.PID)
	if p.User != "" {
		s += " of " + gpus.ShownUser(p.User)
	}
	if p.Command != "" {
		s += ": " + text.ShownCommand(p.Command)
	}
	if p.Memory != nil {
		s += fmt.Sprintf(", with %s", snapshot.MiB(*p.Memory>>20))
	}
	return s
}

// reportAttached prints the devices of an environment, and which processes use those
// that are new: to stderr, so that no script reads it as output.
func (p *program) reportAttached(others inUse, before, now []snapshot.DeviceIndex) {
	if len(now) > 0 {
		p.Warn("Attached GPUs: " + text.JoinIndices(now))
	}
	p.Warn(others.warnings(without(now, before))...)
}

// without are the devices of a list that are not on another.
func without(list, other []snapshot.DeviceIndex) []snapshot.DeviceIndex {
	return slices.DeleteFunc(slices.Clone(list), func(i snapshot.DeviceIndex) bool { return slices.Contains(other, i) })
}
