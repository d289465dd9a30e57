package local

import (
	"context"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// inventory is the list of devices that nvidia-smi gave. It does not change
// once it is made.
type inventory struct {
	devices []nvidiasmi.GPU
	index   map[snapshot.GPUUUID]snapshot.DeviceIndex
	// unlisted are ids that processes use and that nvidia-smi, asked for
	// them, does not list. They are not asked for again.
	unlisted map[snapshot.GPUUUID]bool
	at       time.Time
}

// ask makes an inventory.
func (c *Collector) ask(ctx context.Context) (*inventory, error) {
	at := c.now()
	devices, err := c.SMI.Devices(ctx)
	if err != nil {
		return nil, err
	}
	inv := &inventory{devices: devices, index: make(map[snapshot.GPUUUID]snapshot.DeviceIndex, len(devices)), at: at}
	for _, d := range devices {
		if d.UUID != "" {
			inv.index[d.UUID] = d.Index
		}
	}
	return inv, nil
}

// inventoryFor is an inventory that knows, if anything does, every device in
// usage: the remembered one if it is good for that, else a new one.
func (c *Collector) inventoryFor(ctx context.Context, usage nvidiasmi.Usage) (*inventory, error) {
	inv := c.remembered().inventory
	if inv != nil && c.now().Sub(inv.at) < c.DeviceListTTL && !inv.lacks(usage) {
		return inv, nil
	}
	inv, err := c.ask(ctx)
	if err == nil && inv.lacks(usage) {
		err = c.addInstances(ctx, inv, usage)
	}
	if err != nil {
		return nil, err
	}
	c.rememberDevices(inv)
	return inv, nil
}

// lacks says whether a process uses a device that was not asked for yet.
func (inv *inventory) lacks(usage nvidiasmi.Usage) bool {
	for _, app := range usage.Apps {
		if _, ok := inv.index[app.GPU]; !ok && app.GPU != "" && !inv.unlisted[app.GPU] {
			return true
		}
	}
	return false
}

// addInstances completes a new inventory with the MIG instances of each device,
// which only `nvidia-smi -L` shows, and notes what is not there either.
func (c *Collector) addInstances(ctx context.Context, inv *inventory, usage nvidiasmi.Usage) error {
	listed, err := c.SMI.List(ctx)
	if err != nil {
		return err
	}
	for _, d := range listed {
		for _, instance := range d.MIG {
			inv.index[instance] = d.Index
		}
	}
	inv.unlisted = map[snapshot.GPUUUID]bool{}
	for _, app := range usage.Apps {
		if _, ok := inv.index[app.GPU]; !ok {
			inv.unlisted[app.GPU] = true
		}
	}
	return nil
}

// found is the inventory as the state files take it.
func (inv *inventory) found() []snapshot.Device {
	found := make([]snapshot.Device, 0, len(inv.devices))
	for _, d := range inv.devices {
		found = append(found, snapshot.Device{
			Index: d.Index, UUID: d.UUID, Name: d.Name,
			TotalMemory: d.TotalMemory, UsedMemory: d.UsedMemory, Utilization: d.Utilization,
		})
	}
	return found
}

// agrees says whether the state files hold these devices and no others. A device
// whose memory is not told cannot be in the state files.
func (inv *inventory) agrees(books []snapshot.Device) bool {
	total := make(map[snapshot.DeviceIndex]snapshot.Memory, len(books))
	for _, d := range books {
		total[d.Index] = d.TotalMemory
	}
	for _, d := range inv.devices {
		registered, ok := total[d.Index]
		if d.TotalMemory.Known() && (!ok || registered.Bytes() != d.TotalMemory.Bytes()) {
			return false
		}
		delete(total, d.Index)
	}
	return len(total) == 0
}

// describe adds to the devices of the state files what only nvidia-smi knows, and
// those that cannot be in the state files.
func (inv *inventory) describe(books []snapshot.Device) []snapshot.Device {
	place := make(map[snapshot.DeviceIndex]int, len(books))
	devices := append([]snapshot.Device(nil), books...)
	for i, d := range devices {
		place[d.Index] = i
	}
	for _, d := range inv.found() {
		i, ok := place[d.Index]
		if !ok {
			devices = append(devices, d)
			continue
		}
		d.TotalMemory, d.Attachments = devices[i].TotalMemory, devices[i].Attachments
		devices[i] = d
	}
	return devices
}
