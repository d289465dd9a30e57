package state

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// formerGrace is for how long an environment may use the indices that its GPUs had before they
// were renumbered, since its shells don't know the present ones: a day.
const formerGrace snapshot.StartTime = 24 * 60 * 60 * 100

// GoneAttachment is an attachment to a GPU that is not there any more, while another one has
// its index. It comes back with the GPU.
type GoneAttachment struct {
	UUID    snapshot.GPUUUID     `json:"uuid"`
	Index   snapshot.DeviceIndex `json:"device"` // that it had
	EID     snapshot.EnvID       `json:"eid"`
	Memory  snapshot.Memory      `json:"gpu_memory,omitzero"`
	Written snapshot.Date        `json:"time"`
	Since   snapshot.StartTime   `json:"since"`
}

// FormerIndex is an index that shells of an environment may still use for a GPU that has
// another one, since GPUs were renumbered At then; or, with a UUID, a GPU that had such an index
// later, on which its processes may run.
type FormerIndex struct {
	EID   snapshot.EnvID       `json:"eid"`
	Index snapshot.DeviceIndex `json:"device"`
	UUID  snapshot.GPUUUID     `json:"uuid,omitempty"`
	At    snapshot.StartTime   `json:"at"`
}

func (o *FormerIndex) isOf(eid snapshot.EnvID, index snapshot.DeviceIndex) bool {
	return o.EID == eid && o.Index == index && o.UUID == ""
}

// renumbering moves attachments to the indices that their GPUs have now.
type renumbering struct {
	*Files
	found []snapshot.Device
	next  []snapshot.Device // the registered devices, with other attachments
	moved []string          // as people read it
}

// renumber lets attachments follow their GPUs to the indices that these have in found. Only
// root's genv does it, which notes which GPU an index was. An attachment that no look has seen
// yet may have been made by either numbering: it stays at its index, and its environment may
// use both GPUs.
func (f *Files) renumber(found []snapshot.Device) {
	if !f.KeepsNote {
		return
	}
	f.compared = true
	r := renumbering{Files: f, found: found}
	for _, d := range found {
		if was := r.registered(d.Index).UUID; d.UUID == "" && !slices.ContainsFunc(found, func(o snapshot.Device) bool { return o.UUID == was }) {
			d.UUID = was // nvidia-smi doesn't say which GPU it is
		}
		r.next = append(r.next, snapshot.Device{Index: d.Index, UUID: d.UUID})
	}
	for _, d := range f.Devices {
		r.keepRow(d)
	}
	r.followFormer()
	for _, d := range f.Devices {
		for _, a := range d.Attachments {
			r.place(&d, a)
		}
	}
	r.bringBack()
	for i := range r.next {
		r.setTotal(&r.next[i])
	}
	if len(r.moved) > 0 {
		f.Renumbered = "the GPUs of this host were renumbered: " + strings.Join(r.moved, "; ")
		f.Warnings = append(f.Warnings, f.Renumbered)
	}
	f.Devices = slices.DeleteFunc(r.next, func(d snapshot.Device) bool {
		return f.Device(d.Index) == nil && len(d.Attachments) == 0 // MergeDevices adds it, if it can
	})
}

// registered is the device at an index as it was registered; the zero one if none was.
func (r *renumbering) registered(index snapshot.DeviceIndex) snapshot.Device {
	if d := r.Device(index); d != nil {
		return *d
	}
	return snapshot.Device{}
}

// keepRow keeps a device that isn't found, under an index that no other has.
func (r *renumbering) keepRow(d snapshot.Device) {
	if snapshot.FindDevice(r.next, d.Index) == nil && (d.UUID == "" || r.at(d.UUID) == nil) {
		r.next = append(r.next, snapshot.Device{Index: d.Index, UUID: d.UUID})
	}
}

// at is the row of a GPU.
func (r *renumbering) at(uuid snapshot.GPUUUID) *snapshot.Device {
	if i := slices.IndexFunc(r.next, func(d snapshot.Device) bool { return d.UUID == uuid }); i >= 0 && uuid != "" {
		return &r.next[i]
	}
	return nil
}

// place puts an attachment to a registered device where its GPU is.
func (r *renumbering) place(was *snapshot.Device, a snapshot.Attachment) {
	here, there := snapshot.FindDevice(r.next, was.Index), r.at(was.UUID)
	switch {
	case here != nil && (was.UUID == "" || there == here):
		r.follow(here, a)
	case there == nil && a.Since != 0:
		r.Gone = append(r.Gone, GoneAttachment{was.UUID, was.Index, a.EID, a.GPUMemory, a.Time, a.Since})
		r.move(a.EID, was.Index, "its GPU is not there any more, and the attachment comes back with it")
	case here != nil && a.Since == 0: // it may be to either
		r.follow(here, a)
		if there != nil {
			r.move(a.EID, there.Index, fmt.Sprintf("attached to GPU %s meanwhile, by the old or the new index", was.Index))
		}
	case there != nil:
		r.follow(there, a)
		r.move(a.EID, was.Index, fmt.Sprintf("its GPU is GPU %s now", there.Index))
	}
}

// setTotal sets the memory of a device: as it was registered, which MergeDevices corrects.
func (r *renumbering) setTotal(d *snapshot.Device) {
	for _, known := range slices.Concat(r.Devices, r.found) {
		if known.Index == d.Index && known.TotalMemory.Known() {
			d.TotalMemory, d.Unified = known.TotalMemory, known.Unified
			return
		}
	}
	for _, was := range r.Devices {
		if was.UUID == d.UUID {
			d.TotalMemory, d.Unified = was.TotalMemory, was.Unified
		}
	}
}

// follow attaches to the device of a GPU, once: the environment may have attached to it since.
func (r *renumbering) follow(d *snapshot.Device, a snapshot.Attachment) {
	d.Attachments = without(d.Attachments, func(o snapshot.Attachment) bool { return o.EID == a.EID })
	attach(d, a)
}

// move notes that shells of an environment may use an index that isn't its own any more.
func (r *renumbering) move(eid snapshot.EnvID, index snapshot.DeviceIndex, what string) {
	r.moved = append(r.moved, fmt.Sprintf("device %s of environment %s: %s", index, text.Shown(string(eid)), what))
	r.forgetFormerIndex(eid, index)
	r.Former = append(r.Former, FormerIndex{EID: eid, Index: index})
}

// followFormer notes the GPUs that lose a former index: what was started by it goes on there.
func (r *renumbering) followFormer() {
	for _, o := range r.Former {
		was := r.registered(o.Index).UUID
		if now := snapshot.FindDevice(r.found, o.Index); o.UUID != "" || was == "" || now != nil && now.UUID == was {
			continue
		}
		r.Former = append(without(r.Former, func(x FormerIndex) bool { return x.EID == o.EID && x.UUID == was }),
			FormerIndex{EID: o.EID, UUID: was, At: o.At})
	}
}

// bringBack attaches to GPUs that are there again.
func (r *renumbering) bringBack() {
	var gone []GoneAttachment
	for _, g := range r.Gone {
		d := r.at(g.UUID)
		switch {
		case d == nil:
			gone = append(gone, g)
		case r.Environment(g.EID) != nil && d.Attachment(g.EID) == nil:
			attach(d, snapshot.Attachment{EID: g.EID, GPUMemory: g.Memory, Time: g.Written, Since: g.Since})
			r.move(g.EID, g.Index, fmt.Sprintf("its GPU is there again, as GPU %s", d.Index))
			if d.Index == g.Index {
				r.forgetFormerIndex(g.EID, g.Index)
			}
		}
	}
	r.Gone = gone
}

func (f *Files) forgetFormerIndex(eid snapshot.EnvID, index snapshot.DeviceIndex) {
	f.Former = without(f.Former, func(o FormerIndex) bool { return o.isOf(eid, index) })
}

// forgetFormer drops the former indices of an environment.
func (f *Files) forgetFormer(eid snapshot.EnvID) {
	f.Former = without(f.Former, func(o FormerIndex) bool { return o.EID == eid })
}

// Refresh notes that the shell of an environment knows the present indices of its devices: it
// renews the times of its attachments, which root's genv then takes as that.
func (f *Files) Refresh(eid snapshot.EnvID, at snapshot.Date) {
	f.forgetFormer(eid)
	for i := range f.Devices {
		d := &f.Devices[i]
		d.Attachments = slices.Clone(d.Attachments)
		if a := d.Attachment(eid); a != nil {
			a.Time = at
		}
	}
}

// living are the attachments to GPUs that are gone, and the former indices, of environments
// that are there. It tells the environments which ones they have.
func (f *Files) living(now snapshot.StartTime) (gone []GoneAttachment, former []FormerIndex) {
	environments := snapshot.ByID(f.Environments)
	for i := range f.Environments {
		f.Environments[i].Former = nil
	}
	for _, g := range f.Gone {
		if environments[g.EID] != nil {
			gone = append(gone, g)
		}
	}
	for _, o := range f.Former {
		if o.At == 0 {
			o.At = now
		}
		e := environments[o.EID]
		if e == nil || now >= o.At+formerGrace {
			continue
		}
		former = append(former, o)
		at := slices.IndexFunc(f.Devices, func(d snapshot.Device) bool { return o.UUID != "" && d.UUID == o.UUID })
		if at >= 0 {
			o.Index = f.Devices[at].Index
		}
		if at >= 0 || o.UUID == "" {
			e.Former = append(e.Former, snapshot.FormerIndex{Index: o.Index, Until: o.At + formerGrace})
		}
	}
	return gone, former
}
