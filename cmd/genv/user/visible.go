package user

import (
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// guarded says whether this host has a guard on, so that devices are named by UUID.
func (w *person) guarded() bool { return w.Machine.Hardware.Guarded(w.Machine.Now()) }

// uuids are those of devices on a guarded host, in the same order; nil on others.
func (w *person) uuids(devices []snapshot.DeviceIndex) ([]snapshot.GPUUUID, error) {
	if len(devices) == 0 || !w.guarded() {
		return nil, nil
	}
	known, err := w.Machine.Hardware.Known()
	if err != nil {
		return nil, err
	}
	uuids, ok := hardware.UUIDs(known, devices)
	if !ok {
		return nil, hardware.ErrNotPublished
	}
	return uuids, nil
}

// visible adds the UUIDs of the devices on a guarded host. Without them, which is a
// warning, the shell gets their indices, as on other hosts.
func (p *program) visible(who *person, active shell.Active) shell.Active {
	var err error
	if active.UUIDs, err = who.uuids(active.Devices); err != nil {
		p.Warn(fmt.Sprintf("CUDA_VISIBLE_DEVICES needs UUIDs on this host, which has a guard, and they are not known: %v", err))
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
