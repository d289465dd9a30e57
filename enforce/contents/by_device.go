package contents

import "github.com/seed-3119e985/genv/snapshot"

// ByDevice has a value for each of some devices of a host. A few are looked through, which
// is faster than a map, and many are indexed. The zero ByDevice is empty.
type ByDevice[T any] struct {
	list  []valueOf[T]
	index map[snapshot.DeviceIndex]T // of all, once they are more than a few
}

type valueOf[T any] struct {
	device snapshot.DeviceIndex
	value  T
}

// Get is the value of a device; the zero T if it has none.
func (b *ByDevice[T]) Get(device snapshot.DeviceIndex) (value T) {
	if b.index != nil {
		return b.index[device]
	}
	for i := range b.list {
		if b.list[i].device == device {
			return b.list[i].value
		}
	}
	return value
}

// Add adds a value for a device that has none.
func (b *ByDevice[T]) Add(device snapshot.DeviceIndex, value T) {
	switch {
	case b.index != nil:
		b.index[device] = value
	case len(b.list) < few:
		b.list = append(b.list, valueOf[T]{device, value})
	default:
		b.index = map[snapshot.DeviceIndex]T{device: value}
		for _, v := range b.list {
			b.index[v.device] = v.value
		}
	}
}

// Clear removes all of them.
func (b *ByDevice[T]) Clear() {
	clear(b.list)
	b.list, b.index = b.list[:0], nil
}
