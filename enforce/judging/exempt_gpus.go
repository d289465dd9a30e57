package judging

import (
	"slices"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

func (j *Judgement) keepExemptGPUs() {
	for host, list := range j.Before.ExemptGPUs {
		if j.ByName[host] != nil {
			continue
		}
		entries := j.Policy.ExemptIndices(host)
		kept := slices.DeleteFunc(slices.Clone(list), func(e enforce.ExemptGPU) bool {
			return !slices.Contains(entries, enforce.ExemptGPU{Index: e.Index, Entry: e.Entry})
		})
		if len(kept) > 0 {
			j.Next.ExemptGPUs[host] = kept
		}
	}
}

// exemptByIndex are the devices that the policy exempts by index: all until it is known which GPU an index means.
func (h *HostView) exemptByIndex() map[snapshot.DeviceIndex]bool {
	entries, devices := h.j.Policy.ExemptIndices(h.Name), h.Snapshot.Devices
	if len(entries) == 0 {
		return nil
	}
	exempt := make(map[snapshot.DeviceIndex]bool)
	old := !slices.ContainsFunc(devices, func(d snapshot.Device) bool { return d.UUID != "" }) // 1.4.3 has none
	for _, e := range entries {
		known := slices.IndexFunc(h.j.Before.ExemptGPUs[h.Name], func(k enforce.ExemptGPU) bool {
			return k.Index == e.Index && k.Entry == e.Entry
		})
		switch {
		case known >= 0:
			e.UUID = h.j.Before.ExemptGPUs[h.Name][known].UUID
		case old:
			exempt[e.Index] = true
			continue
		default: // ambiguous UUIDs don't count
			if d := h.Snapshot.Device(e.Index); d != nil && uuidIn(devices, d.UUID) == 1 {
				e.UUID = d.UUID
			}
		}
		if e.UUID == "" {
			h.j.Note(h, "which GPU the exempt index %s (%s) is can't be told yet, so no rule acts on its GPUs", e.Index,
				e.Entry)
			for i := range devices {
				exempt[devices[i].Index] = true
			}
			continue
		}
		h.j.Next.ExemptGPUs[h.Name] = append(h.j.Next.ExemptGPUs[h.Name], e)
		for i := range devices {
			if d := &devices[i]; d.UUID == e.UUID || d.UUID == "" && uuidIn(devices, e.UUID) == 0 {
				exempt[d.Index] = true
			}
		}
	}
	return exempt
}

func uuidIn(devices []snapshot.Device, uuid snapshot.GPUUUID) (n int) {
	for i := range devices {
		if devices[i].UUID == uuid {
			n++
		}
	}
	return n
}
