package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// Snapshot takes the whole snapshot: two calls of nvidia-smi, or one while its
// list of devices is still good, and a third one only for MIG instances. The
// processes are in ascending order of PID. An error means that nothing is
// known; it wraps an error of nvidiasmi or of state, or the context's.
func (c *Collector) Snapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	usage, err := c.SMI.Apps(ctx)
	if err != nil {
		return nil, err
	}
	inventory, err := c.inventoryFor(ctx, usage)
	if err != nil {
		return nil, err
	}
	observer, seen, warnings := c.observe(usage, inventory, c.remembered().processes)
	books, err := c.books(ctx, inventory)
	if err != nil {
		return nil, err
	}
	processes, more := observer.settle(seen, books.Environments, unusable(books))
	c.rememberProcesses(observer.after)
	if books, err = c.reattach(ctx, processes, books); err != nil {
		return nil, err
	}
	s := &snapshot.Snapshot{
		Processes:    processes,
		Environments: books.Environments,
		Devices:      inventory.describe(books.Devices),
		Warnings:     slices.Concat(warnings, more, bookWarnings(books)),
	}
	s.Warnings = append(s.Warnings, spareAfterRestore(s, &books, c.now())...)
	if s.BootID, err = c.Proc.BootID(); err != nil {
		s.Warnings = append(s.Warnings, err.Error())
	}
	if c.Brief {
		return s, nil
	}
	s.MachineID = c.machineID()
	if s.StateFolder, err = c.folder(); err != nil {
		s.Warnings = append(s.Warnings, err.Error())
	}
	return s, nil
}

// Processes is the part of a snapshot that `--type processes` prints, and its
// warnings: the environments of processes are those of a whole snapshot. If the
// state files can't be read, only the environ of a process tells its
// environment, and one without is unknown. When nobody uses a device, nvidia-smi
// is asked once and the state files are not read.
//
// All of it is read each time, and is what the next snapshot uses again: a process
// may have overwritten its claim since it was judged, and would be judged by the
// old one and spared for the new one in every cycle.
func (c *Collector) Processes(ctx context.Context) ([]snapshot.Process, []string, error) {
	usage, err := c.SMI.Apps(ctx)
	if err != nil {
		return nil, nil, err
	}
	inventory := &inventory{}
	if len(usage.Apps) > 0 {
		inventory, err = c.inventoryFor(ctx, usage)
	}
	if err != nil {
		return nil, nil, err
	}
	observer, seen, warnings := c.observe(usage, inventory, knowledge{})
	var books state.Files
	if len(seen) > 0 {
		books, err = c.StateFiles.Read(ctx)
	}
	if errors.Is(err, state.ErrNoDevices) {
		err = nil
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	processes, more := observer.settle(seen, books.Environments, cmp.Or(err, unusable(books)))
	c.rememberProcesses(observer.after)
	if err != nil {
		more = append(more, err.Error())
	}
	return processes, append(warnings, more...), nil
}

// Environments is the part of a snapshot that `--type envs` prints, and its
// warnings. It never runs nvidia-smi.
func (c *Collector) Environments(ctx context.Context) ([]snapshot.Environment, []string, error) {
	books, err := c.StateFiles.Read(ctx)
	if err != nil && !errors.Is(err, state.ErrNoDevices) {
		return nil, nil, err
	}
	return books.Environments, bookWarnings(books), nil
}

// Devices is the part of a snapshot that `--type devices` prints, and its
// warnings. It runs nvidia-smi only when the state files hold no devices yet.
func (c *Collector) Devices(ctx context.Context) ([]snapshot.Device, []string, error) {
	books, err := c.StateFiles.Read(ctx)
	if errors.Is(err, state.ErrNoDevices) {
		books, err = c.discover(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	return books.Devices, bookWarnings(books), nil
}

func (c *Collector) discover(ctx context.Context) (state.Files, error) {
	found, err := c.ListDevices(ctx)
	if err != nil {
		return state.Files{}, err
	}
	return c.StateFiles.RegisterDevices(ctx, found)
}

// ListDevices asks nvidia-smi for the devices that are there now, without their
// attachments, for Books to register. It does not look at the state files.
func (c *Collector) ListDevices(ctx context.Context) ([]snapshot.Device, error) {
	inventory, err := c.ask(ctx)
	if err != nil {
		return nil, err
	}
	return inventory.found(), nil
}

// books reads the state files, and brings them in line with the devices that are
// there when they are not.
func (c *Collector) books(ctx context.Context, inventory *inventory) (state.Files, error) {
	books, err := c.StateFiles.Read(ctx)
	if err != nil && !errors.Is(err, state.ErrNoDevices) {
		return state.Files{}, err
	}
	if err == nil && inventory.agrees(books.Devices) {
		return books, nil
	}
	return c.StateFiles.RegisterDevices(ctx, inventory.found())
}

// maxDisowned is how many environments that the kernel disowns are named: any
// user can register as many as there is room for.
const maxDisowned = 20

// bookWarnings are the warnings of the state files and one for every environment
// that the kernel disowns.
func bookWarnings(books state.Files) []string {
	warnings := slices.Clone(books.Warnings)
	disowned := 0
	for i := range books.Environments {
		e := &books.Environments[i]
		if !e.OwnerMismatch {
			continue
		}
		if disowned++; disowned <= maxDisowned {
			warnings = append(warnings, fmt.Sprintf("environment %s is registered for uid %d (%s), but under another name, or for processes of another user",
				snapshot.Shown(string(e.EID)), e.UID, snapshot.Shown(string(e.Username))))
		}
	}
	if more := disowned - maxDisowned; more > 0 {
		warnings = append(warnings, fmt.Sprintf("the same is true of %d more environments: look who writes them into envs.json", more))
	}
	return warnings
}
