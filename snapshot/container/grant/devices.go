package grant

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// wanted are the devices that the request names, of which those in all are "all". It is
// empty for a request by number.
func (c Claim) wanted(f *state.Files, all []snapshot.DeviceIndex) (list []snapshot.DeviceIndex, err error) {
	add := func(index snapshot.DeviceIndex) {
		if !slices.Contains(list, index) {
			list = append(list, index)
		}
	}
	if c.Count > 0 {
		if c.All || len(c.Names)+len(c.Minors) > 0 {
			return nil, fmt.Errorf("%w: %s is a number of devices, and --device names some: use one of both", ErrRequest, GPUs)
		}
		return nil, nil
	}
	if c.All {
		list = slices.Clone(all)
	}
	for _, name := range c.Names {
		index, err := c.index(f, name)
		if err != nil {
			return nil, err
		}
		if f.Device(index) == nil {
			return nil, f.NoDevice(index)
		}
		add(index)
	}
	for _, minor := range c.Minors {
		i := slices.IndexFunc(c.Hardware, func(d hardware.Device) bool { return d.Minor != nil && *d.Minor == minor })
		if i < 0 {
			return nil, fmt.Errorf("%w: which GPU /dev/nvidia%d is isn't known: `sudo genv usage snapshot` finds out", ErrRefused, minor)
		}
		add(c.Hardware[i].Index)
	}
	slices.Sort(list)
	return list, nil
}

// index is the device of a name: an index, or a UUID, also one that is cut short as NVIDIA's
// programs allow. An attached MIG instance has one, too.
func (c Claim) index(f *state.Files, name string) (snapshot.DeviceIndex, error) {
	if list, err := text.ParseIndices[snapshot.DeviceIndex](name); err == nil && len(list) == 1 {
		return list[0], nil
	}
	var found []snapshot.DeviceIndex
	if c.Proof.EID != "" || c.Shared {
		for _, part := range change.Parts(f, cmp.Or(c.Proof.EID, c.EID)) {
			if slices.Contains(part.Instances, snapshot.GPUUUID(name)) {
				found = append(found, part.Index)
			}
		}
	}
	for _, d := range c.Hardware {
		if len(name) > len("GPU-") && strings.HasPrefix(string(d.UUID), name) {
			found = append(found, d.Index)
		}
	}
	if len(found) != 1 {
		return 0, fmt.Errorf("%w: there is no GPU %s on this machine", ErrRefused, text.Quoted(name, maxShown))
	}
	return found[0], nil
}

// with adds the devices. Of one of which the environment has MIG instances, they are what the
// container has.
func (g Granted) with(f *state.Files, list []snapshot.DeviceIndex, known []hardware.Device) Granted {
	g.Devices = list
	parts := change.Parts(f, g.EID)
	var uuids []snapshot.GPUUUID
	for _, index := range list {
		if i := slices.IndexFunc(parts, func(p change.Part) bool { return p.Index == index }); i >= 0 {
			uuids = append(uuids, parts[i].Instances...)
			continue
		}
		own, ok := hardware.UUIDs(known, []snapshot.DeviceIndex{index})
		if !ok && len(parts) == 0 {
			return g // then all are named by their indices
		}
		uuids = append(uuids, own...)
	}
	g.UUIDs = uuids
	return g
}
