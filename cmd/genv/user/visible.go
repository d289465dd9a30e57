package user

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// guarded says whether this host has a guard on, so that devices are named by UUID.
func (w *person) guarded() bool { return w.Machine.Hardware.Guarded(w.Machine.Now()) }

// uuids are those of devices on a guarded host, or if some of them are attached by MIG
// instance, in the same order; otherwise nil. CUDA reads a list of indices or of UUIDs, and
// not one of both.
func (w *person) uuids(devices []snapshot.DeviceIndex, parts []change.Part) ([]snapshot.GPUUUID, error) {
	if len(devices) == 0 || len(parts) == 0 && !w.guarded() {
		return nil, nil
	}
	uuids := make([]snapshot.GPUUUID, len(devices))
	var known []hardware.Device
	for i, index := range devices {
		if at := slices.IndexFunc(parts, func(p change.Part) bool { return p.Index == index }); at >= 0 {
			uuids[i] = joined(parts[at].Instances)
			continue
		}
		var err error
		if known == nil {
			known, err = w.Machine.Hardware.Known()
		}
		if err != nil {
			return nil, err
		}
		own, ok := hardware.UUIDs(known, devices[i:i+1])
		if !ok {
			return nil, hardware.ErrNotPublished
		}
		uuids[i] = own[0]
	}
	return uuids, nil
}

// visible adds the UUIDs of the devices where they are needed. Without them, which is a
// warning, the shell gets their indices, as on other hosts.
func (p *program) visible(who *person, active shell.Active) shell.Active {
	var err error
	if active.UUIDs, err = who.uuids(active.Devices, active.Parts); err != nil {
		p.Warn(fmt.Sprintf("CUDA_VISIBLE_DEVICES needs UUIDs here (a guard is on, or MIG instances are attached), and they are not known: %v", err))
	}
	return active
}

// adviseOfIndices warns a shell that was activated before the guard came on: its indices
// are those of all devices, but its programs count only those that they may open.
func (p *program) adviseOfIndices(who *person) {
	visible := p.Getenv("CUDA_VISIBLE_DEVICES")
	if visible == "" || strings.Trim(visible, "0123456789,") != "" || !who.guarded() {
		return
	}
	p.Warn(fmt.Sprintf("CUDA_VISIBLE_DEVICES of this shell is %s: since this host has a guard, it has to hold UUIDs: run genv attach --refresh", text.Quoted(visible, 80)))
}

// adviseOfFormer warns a shell with indices in CUDA_VISIBLE_DEVICES that were other GPUs when it
// got them.
func (p *program) adviseOfFormer(env *snapshot.Environment, attached []snapshot.DeviceIndex) {
	visible := p.Getenv("CUDA_VISIBLE_DEVICES")
	isIndices := visible != "" && strings.Trim(visible, "0123456789,") == ""
	if len(env.Former) == 0 || !isIndices || visible == (&shell.Active{Devices: attached}).VisibleDevices() {
		return
	}
	p.Warn(fmt.Sprintf("the GPUs of this host were renumbered, and CUDA_VISIBLE_DEVICES of this shell is still %s: run genv attach --refresh, and start again what is on the old indices",
		text.Quoted(visible, 80)))
}

func joined(instances []snapshot.GPUUUID) snapshot.GPUUUID {
	names := make([]string, len(instances))
	for i, uuid := range instances {
		names[i] = string(uuid)
	}
	return snapshot.GPUUUID(strings.Join(names, ","))
}
