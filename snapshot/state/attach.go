package state

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// AttachRequest asks for devices, by their number or by their indices.
type AttachRequest struct {
	EID snapshot.EnvID
	// Count is how many devices the environment is to have in all, those that
	// it has already included. 0 when Indices are given.
	Count   int
	Indices []snapshot.DeviceIndex
	// Memory is the capacity wanted on each device; unknown asks for whole
	// devices.
	Memory snapshot.Memory
	// OverSubscribe takes devices whether they have room or not.
	OverSubscribe bool
	// Busy are the devices that processes of others use, as far as is known:
	// they are taken last.
	Busy []snapshot.DeviceIndex
	At   snapshot.Date
}

// Attach gives an environment devices, those that are not Busy first, then those
// with the fewest attachments, and lists all that it is attached to then. It is all
// or nothing: on an error, which wraps ErrRequest, ErrUnavailable or ErrNoDevices,
// the state files are unchanged.
//
// A whole device is one without other attachments. A device is shared by
// capacity: the capacities of all must fit its memory, and none may have the
// whole device. As in 1.4.3, the environment need not be registered; the
// attachments of one that is not end when the state is next read.
func (b *Files) Attach(r AttachRequest) ([]snapshot.DeviceIndex, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	if b.Devices == nil {
		return nil, ErrNoDevices
	}
	choose := b.chooseCount
	if len(r.Indices) > 0 {
		choose = b.chooseIndices
	}
	chosen, err := choose(r)
	if err != nil {
		return nil, err
	}
	for _, d := range chosen {
		d.Attachments = append(slices.Clone(d.Attachments),
			snapshot.Attachment{EID: r.EID, GPUMemory: r.Memory, Time: r.At})
	}
	return b.AttachedTo(r.EID), nil
}

func (r *AttachRequest) check() error {
	if r.EID == "" {
		return fmt.Errorf("%w: an environment needs an id", ErrRequest)
	}
	if err := snapshot.CheckName("the environment id", string(r.EID)); err != nil {
		return fmt.Errorf("%w: %w", ErrRequest, err)
	}
	if r.Memory.Known() && r.Memory.Bytes() == 0 {
		return fmt.Errorf("%w: a capacity of %s is no memory at all", ErrRequest, r.Memory)
	}
	if r.Count != 0 && len(r.Indices) > 0 {
		return fmt.Errorf("%w: give a number of devices or their indices, not both", ErrRequest)
	}
	if r.Count < 1 && len(r.Indices) == 0 {
		return fmt.Errorf("%w: %d devices: ask for at least 1", ErrRequest, r.Count)
	}
	return nil
}

// chooseCount picks what is missing to the number that was asked for.
func (b *Files) chooseCount(r AttachRequest) ([]*snapshot.Device, error) {
	missing := r.Count - len(b.AttachedTo(r.EID))
	var free []*snapshot.Device
	for i := range b.Devices {
		if d := &b.Devices[i]; d.Attachment(r.EID) == nil && r.fits(d) {
			free = append(free, d)
		}
	}
	if missing > len(free) {
		return nil, &TooManyError{Requested: r.Count, Total: len(b.Devices), Free: r.Count - missing + len(free), Conflicts: b.holders(r.EID, nil)}
	}
	busy := func(d *snapshot.Device) int {
		if slices.Contains(r.Busy, d.Index) {
			return 1
		}
		return 0
	}
	slices.SortFunc(free, func(x, y *snapshot.Device) int {
		return cmp.Or(cmp.Compare(busy(x), busy(y)), cmp.Compare(len(x.Attachments), len(y.Attachments)), cmp.Compare(x.Index, y.Index))
	})
	return free[:max(missing, 0)], nil
}

// chooseIndices picks those of the devices asked for that it does not have.
func (b *Files) chooseIndices(r AttachRequest) ([]*snapshot.Device, error) {
	var chosen []*snapshot.Device
	for _, index := range r.Indices {
		d := b.Device(index)
		if d == nil {
			return nil, &NoDeviceError{Index: index, Total: len(b.Devices)}
		}
		if d.Attachment(r.EID) != nil || slices.Contains(chosen, d) {
			continue
		}
		if !r.fits(d) {
			return nil, &TakenError{Index: index, Conflicts: b.holders(r.EID, &index)}
		}
		chosen = append(chosen, d)
	}
	return chosen, nil
}

// fits says whether a device has room for what is asked.
func (r *AttachRequest) fits(d *snapshot.Device) bool {
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
