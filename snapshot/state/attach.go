package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// AttachRequest asks for devices by number or by index.
type AttachRequest struct {
	EID           snapshot.EnvID         `json:"eid"`
	Count         int                    `json:"count,omitempty"` // of devices, including those it has; 0 with Indices
	Indices       []snapshot.DeviceIndex `json:"indices,omitzero"`
	OverSubscribe bool                   `json:"over_subscribe,omitempty"` // even if devices have no room
	Availability
	Instances []InstanceRequest `json:"mig,omitempty"`       // instead of Count and Indices
	Memory    snapshot.Memory   `json:"gpu_memory,omitzero"` // on each device; unknown: whole devices
	At        snapshot.Date     `json:"-"`
}

// Availability is what the requester knows about the devices.
type Availability struct {
	// States of devices that aren't known to be unused: see gpus.States.
	States map[snapshot.DeviceIndex]gpus.State `json:"states,omitzero"`
	// Last of those in the same state, in this order: see gpus.Last.
	Last []snapshot.DeviceIndex `json:"last,omitzero"`
	// Only these may be attached without OverSubscribe, as the others are unknown; nil: all.
	Only []snapshot.DeviceIndex `json:"only,omitzero"`
	Kept []snapshot.DeviceIndex `json:"-"` // by root's service, for waiting users
}

// InstanceRequest asks for a MIG instance of a device.
type InstanceRequest struct {
	Index  snapshot.DeviceIndex `json:"device"`
	UUID   snapshot.GPUUUID     `json:"uuid"`
	Memory snapshot.Memory      `json:"gpu_memory,omitzero"` // of the instance; unknown: as of the device
	Shares bool                 `json:"shares,omitempty"`    // its memory is another instance's too
}

// Attach attaches devices to an environment, the best first (see Room), and returns all that it has. A device is for
// one environment, or shared by capacity. An error, which wraps ErrRequest, ErrUnavailable or ErrNoDevices, changes
// nothing. As in 1.4.3, the environment need not be registered.
func (f *Files) Attach(r AttachRequest) ([]snapshot.DeviceIndex, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if f.Devices == nil {
		return nil, ErrNoDevices
	}
	var chosen []*snapshot.Device
	var err error
	switch {
	case len(r.Instances) > 0:
		err = f.attachInstances(r)
	case len(r.Indices) > 0:
		chosen, err = f.chooseIndices(r)
	default:
		chosen, err = f.chooseCount(r)
	}
	if err != nil {
		return nil, err
	}
	for _, d := range chosen {
		attach(d, snapshot.Attachment{EID: r.EID, GPUMemory: r.Memory, Time: r.At})
	}
	return f.AttachedTo(r.EID), nil
}

// attach doesn't change the old list, which a caller may have.
func attach(d *snapshot.Device, a snapshot.Attachment) {
	d.Attachments = append(slices.Clone(d.Attachments), a)
}

func (r *AttachRequest) check() error {
	switch {
	case r.Count != 0 && len(r.Indices) > 0:
		return Refuse("give a number of GPUs or their indices, not both")
	case len(r.Instances) > 0 && (r.Count != 0 || len(r.Indices) > 0):
		return Refuse("give MIG instances or GPUs, not both")
	case len(r.Instances) == 0 && r.Count < 1 && len(r.Indices) == 0:
		return Refuse("%d GPUs: ask for at least 1", r.Count)
	}
	return cmp.Or(CheckEID(r.EID), CheckMemory(r.Memory))
}

func (f *Files) chooseCount(r AttachRequest) ([]*snapshot.Device, error) {
	missing := r.Count - len(f.AttachedTo(r.EID))
	free := f.Room(r)
	if missing > len(free) {
		return nil, f.tooMany(r, r.Count-missing+len(free))
	}
	return free[:max(missing, 0)], nil
}

// Room returns the devices for a request, the best first.
func (f *Files) Room(r AttachRequest) (free []*snapshot.Device) {
	for i := range f.Devices {
		if d := &f.Devices[i]; d.Attachment(r.EID) == nil && r.fits(d) {
			free = append(free, d)
		}
	}
	order := func(d *snapshot.Device) int { return slices.Index(gpus.States(), r.States[d.Index]) }
	slices.SortFunc(free, func(x, y *snapshot.Device) int {
		attached := cmp.Compare(len(x.Attachments), len(y.Attachments))
		last := cmp.Compare(slices.Index(r.Last, x.Index), slices.Index(r.Last, y.Index))
		return cmp.Or(cmp.Compare(order(x), order(y)), last, attached, cmp.Compare(x.Index, y.Index))
	})
	return free
}

// CheckRequest refuses more GPUs than the host has, or more memory than the largest.
func (f *Files) CheckRequest(r AttachRequest) error {
	n, total, most := max(r.Count, len(r.Indices)), len(f.Devices), f.largest()
	switch {
	case n > total:
		return Unavailable("Requested more devices (%d) than total available (%d)", n, total)
	case r.Memory.Known() && most.Known() && most.Bytes() < r.Memory.Bytes():
		return Unavailable("No GPU of this host has %s of memory: the largest one has %s", r.Memory, most)
	}
	return nil
}

func (f *Files) tooMany(r AttachRequest, available int) error {
	e := &UnavailableError{TooFew: true}
	if err := f.CheckRequest(r); err != nil {
		e.Reason = err.Error()
	} else {
		e.Reason = fmt.Sprintf("Requested more devices (%d) than currently available (%d)", r.Count, available)
		e.Conflicts = f.conflicts(r.EID, nil)
	}
	kept := r.Kept
	r.Kept = nil // named once, below
	for i := range f.Devices {
		if d := &f.Devices[i]; d.Attachment(r.EID) == nil && r.refuses(d) != "" {
			e.Reason += "; " + r.refuses(d)
		}
	}
	if n := len(kept); n > 0 {
		which := []string{"GPU %s is ", "GPUs %s are "}[min(n, 2)-1]
		e.Reason += fmt.Sprintf("; "+which+keptForWaits, text.JoinIndices(kept))
	}
	return e
}

// largest returns the largest device's memory; unknown if any is.
func (f *Files) largest() (most snapshot.Memory) {
	for i := range f.Devices {
		switch total := f.Devices[i].TotalMemory; {
		case !total.Known():
			return total
		case !most.Known() || total.Bytes() > most.Bytes():
			most = total
		}
	}
	return most
}

func (f *Files) chooseIndices(r AttachRequest) ([]*snapshot.Device, error) {
	var chosen []*snapshot.Device
	for _, index := range r.Indices {
		d := f.Device(index)
		if d == nil {
			return nil, f.NoDevice(index)
		}
		if d.Attachment(r.EID) != nil || slices.Contains(chosen, d) {
			continue
		}
		if reason := r.refuses(d); reason != "" {
			return nil, Unavailable("%s", reason)
		}
		if !r.fits(d) {
			reason := fmt.Sprintf("Device %d is not available", index)
			return nil, &UnavailableError{Reason: reason, Conflicts: f.conflicts(r.EID, &index)}
		}
		chosen = append(chosen, d)
	}
	return chosen, nil
}

const keptForWaits = "kept for people who wait: `genv gpus` names them, and --wait waits for the next turn"

// refuses says why a device can't be attached, whatever its room; empty if it can.
func (r *AttachRequest) refuses(d *snapshot.Device) string {
	switch state := r.States[d.Index]; {
	case state == gpus.Failed:
		return fmt.Sprintf("GPU %d has failed and is given to no user: `genv gpus` says why", d.Index)
	case state == gpus.Unusable:
		return fmt.Sprintf("GPU %d is unusable and is given to no user: `genv gpus` says why", d.Index)
	case state == gpus.MIG && len(r.Instances) == 0:
		return fmt.Sprintf("GPU %d is in MIG mode: `genv attach --mig` attaches its instances", d.Index)
	case r.Only != nil && !slices.Contains(r.Only, d.Index) && !r.OverSubscribe && len(r.Instances) == 0:
		return fmt.Sprintf("it is unknown whether GPU %d is free, since nvidia-smi doesn't answer: -o attaches it all "+
			"the same", d.Index)
	case slices.Contains(r.Kept, d.Index) && (!r.OverSubscribe || len(d.Attachments) == 0):
		return fmt.Sprintf("GPU %d is "+keptForWaits, d.Index)
	case d.Unified && r.Memory.Known():
		return fmt.Sprintf("GPU %d shares the memory of its machine and has no capacity of its own:"+
			" attach it without --gpu-memory", d.Index)
	}
	return ""
}

func (r *AttachRequest) fits(d *snapshot.Device) bool {
	if r.refuses(d) != "" {
		return false
	}
	if r.OverSubscribe {
		return true
	}
	if !r.Memory.Known() {
		return len(d.Attachments) == 0
	}
	room := d.TotalMemory.Bytes()
	for _, a := range d.Attachments {
		if !a.GPUMemory.Known() || a.GPUMemory.Bytes() > room {
			return false
		}
		room -= a.GPUMemory.Bytes()
	}
	return r.Memory.Bytes() <= room
}

// Resize changes an environment's capacity on its devices, except MIG instances; unknown: the whole device. Without
// room the error wraps ErrUnavailable.
func (f *Files) Resize(eid snapshot.EnvID, memory snapshot.Memory) error {
	r := AttachRequest{EID: eid, Memory: memory}
	for i := range f.Devices {
		d := &f.Devices[i]
		a := d.Attachment(eid)
		if a == nil || len(a.Instances) > 0 {
			continue
		}
		others := *d
		others.Attachments = without(d.Attachments, func(o snapshot.Attachment) bool { return o.EID == eid })
		smaller := memory.Known() && (!a.GPUMemory.Known() || memory.Bytes() <= a.GPUMemory.Bytes())
		switch reason := r.refuses(d); {
		case reason != "":
			return Unavailable("%s", reason)
		case !smaller && !r.fits(&others):
			reason := fmt.Sprintf("GPU %d has too little free memory: nothing was changed", d.Index)
			return &UnavailableError{Reason: reason, Conflicts: f.conflicts(eid, &d.Index)}
		}
		d.Attachments = slices.Clone(d.Attachments)
		d.Attachment(eid).GPUMemory = memory
	}
	return nil
}

// Detach removes attachments to these devices, or all, and returns the remaining ones.
func (f *Files) Detach(eid snapshot.EnvID, indices ...snapshot.DeviceIndex) []snapshot.DeviceIndex {
	for i := range f.Devices {
		if d := &f.Devices[i]; len(indices) == 0 || slices.Contains(indices, d.Index) {
			d.Attachments = without(d.Attachments, func(a snapshot.Attachment) bool { return a.EID == eid })
		}
	}
	return f.AttachedTo(eid)
}

// Conflict is an attachment that prevents a request.
type Conflict struct {
	Index    snapshot.DeviceIndex `json:"device"`
	EID      snapshot.EnvID       `json:"eid"`
	UID      *snapshot.UID        `json:"uid,omitempty"`       // nil if the environment isn't registered
	Username snapshot.Username    `json:"username,omitempty"`  // empty if unknown
	Memory   snapshot.Memory      `json:"gpu_memory,omitzero"` // unknown: the whole device
	Since    snapshot.Date        `json:"since,omitzero"`
}

// String quotes and truncates texts from users.
func (a Conflict) String() string {
	who := ""
	switch {
	case a.UID != nil && a.Username != "":
		who = fmt.Sprintf(" of %s(%d)", text.Shown(string(a.Username)), *a.UID)
	case a.UID != nil:
		who = fmt.Sprintf(" of uid %d", *a.UID)
	}
	return fmt.Sprintf("GPU %d: environment %s%s has %s since %s", a.Index, text.Shown(string(a.EID)), who,
		cmp.Or(a.Memory.String(), "it"), a.Since.ISO())
}

// conflicts returns others' attachments to a device, or all if index is nil.
func (f *Files) conflicts(eid snapshot.EnvID, index *snapshot.DeviceIndex) []Conflict {
	var list []Conflict
	environments := snapshot.ByID(f.Environments)
	for i := range f.Devices {
		d := &f.Devices[i]
		if index != nil && d.Index != *index {
			continue
		}
		for _, a := range d.Attachments {
			if a.EID == eid {
				continue
			}
			by := Conflict{Index: d.Index, EID: a.EID, Memory: a.GPUMemory, Since: a.Time}
			if env := environments[a.EID]; env != nil {
				by.UID, by.Username = &env.UID, env.Username
			}
			list = append(list, by)
		}
	}
	return list
}

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
		taken := func(a snapshot.Attachment) bool { // by another environment
			return a.EID != r.EID && (len(a.Instances) == 0 || slices.Contains(a.Instances, wanted.UUID))
		}
		switch {
		case own != nil && slices.Contains(own.Instances, wanted.UUID):
			continue
		case own != nil && len(own.Instances) == 0:
			return Refuse("the environment has all of GPU %s: detach that first", wanted.Index)
		case !r.OverSubscribe && slices.ContainsFunc(d.Attachments, taken):
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

// together is the capacity with another instance: as configured, else the sum; unknown if either is.
func together(before, more, configured snapshot.Memory) snapshot.Memory {
	if configured.Known() {
		return configured
	}
	if !before.Known() || !more.Known() {
		return snapshot.Memory{}
	}
	return snapshot.MiB(before.Bytes()>>20 + more.Bytes()>>20)
}
