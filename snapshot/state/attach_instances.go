package state

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// attachInstances attaches to MIG instances, which share nothing.
func (f *Files) attachInstances(r AttachRequest) error {
	devices := slices.Clone(f.Devices)
	for _, wanted := range r.Instances {
		d := snapshot.FindDevice(devices, wanted.Index)
		if d == nil {
			return f.NoDevice(wanted.Index)
		}
		if reason := r.refuses(d); reason != "" {
			return Unavailable("%s", reason)
		}
		own := d.Attachment(r.EID)
		switch {
		case own != nil && slices.Contains(own.Instances, wanted.UUID):
			continue
		case own != nil && len(own.Instances) == 0:
			return Refuse("the environment has all of GPU %s: detach that first", wanted.Index)
		case !r.OverSubscribe && !instanceFree(d, r.EID, wanted.UUID):
			reason := fmt.Sprintf("MIG instance %s of GPU %d is not available", wanted.UUID, wanted.Index)
			return &UnavailableError{Reason: reason, Conflicts: f.conflicts(r.EID, &wanted.Index)}
		}
		instances := []snapshot.GPUUUID{wanted.UUID}
		next := snapshot.Attachment{EID: r.EID, GPUMemory: r.Memory, Time: r.At, Instances: instances}
		if !r.Memory.Known() {
			next.GPUMemory = wanted.Memory
		}
		if own != nil {
			next.Time, next.Instances = own.Time, append(slices.Clone(own.Instances), wanted.UUID)
			if next.GPUMemory = together(own.GPUMemory, next.GPUMemory, r.Memory); wanted.Shares {
				next.GPUMemory = own.GPUMemory
			}
			d.Attachments = without(d.Attachments, func(a snapshot.Attachment) bool { return a.EID == r.EID })
		}
		attach(d, next)
	}
	f.Devices = devices
	return nil
}

// instanceFree says whether all other attachments to a device are to other instances of it.
func instanceFree(d *snapshot.Device, eid snapshot.EnvID, uuid snapshot.GPUUUID) bool {
	return !slices.ContainsFunc(d.Attachments, func(a snapshot.Attachment) bool {
		return a.EID != eid && (len(a.Instances) == 0 || slices.Contains(a.Instances, uuid))
	})
}

// together is the capacity on a device with another instance: as configured, or the sum; unknown if one is unknown.
func together(before, more, configured snapshot.Memory) snapshot.Memory {
	if configured.Known() {
		return configured
	}
	if !before.Known() || !more.Known() {
		return snapshot.Memory{}
	}
	return snapshot.MiB(before.Bytes()>>20 + more.Bytes()>>20)
}
