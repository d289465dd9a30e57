package recording

import (
	"encoding/binary"
	"reflect"

	"github.com/seed-3119e985/genv/snapshot"
)

// A snapshot is written as what changed since the one before of the same host: for processes,
// environments and devices, in this order, a script of steps that makes the new list of the old
// one, and then a snapshot in the native format that contains the items that are new. Memory of
// processes and the utilization of devices, which change often, are numbers in the script.
//
// A script is the number of its steps, then the steps: each a number of items, shifted, with what
// is done with them. No steps mean that the list is the same.
const (
	stepKeep   = iota // so many items stay as they are
	stepDrop          // so many are gone
	stepNew           // so many follow from the new snapshot
	stepAdjust        // one stays, with the numbers that follow
	stepBits   = 2
)

// What follows the scripts.
const (
	flagFresh = 1 << iota // a snapshot with the items that are new
	flagHost              // it also has what is about the host itself
)

// appendDelta appends what changed between two snapshots that Judged returned; ok is false if
// nothing did.
func appendDelta(b []byte, before, after *snapshot.Snapshot) (_ []byte, ok bool, err error) {
	fresh := &snapshot.Snapshot{}
	var steps int
	add := func(body []byte, n int) {
		b = binary.AppendUvarint(b, uint64(n))
		b = append(b, body...)
		steps += n
	}
	add(script(before.Processes, after.Processes, pidOf, adjustProcess, &fresh.Processes))
	add(script(before.Environments, after.Environments, eidOf, adjustEnvironment, &fresh.Environments))
	add(script(before.Devices, after.Devices, indexOf, adjustDevice, &fresh.Devices))
	var flags byte
	if !sameHost(before, after) {
		flags = flagHost | flagFresh
		fresh.UTCOffset, fresh.Extensions = after.UTCOffset, after.Extensions
	}
	if len(fresh.Processes)+len(fresh.Environments)+len(fresh.Devices) > 0 {
		flags |= flagFresh
	}
	b = append(b, flags)
	if flags&flagFresh != 0 {
		data, err := snapshot.EncodeNative(fresh)
		if err != nil {
			return nil, false, err
		}
		b = binary.AppendUvarint(b, uint64(len(data)))
		b = append(b, data...)
	}
	return b, steps > 0 || flags != 0, nil
}

func pidOf(p *snapshot.Process) snapshot.PID          { return p.PID }
func eidOf(e *snapshot.Environment) snapshot.EnvID    { return e.EID }
func indexOf(d *snapshot.Device) snapshot.DeviceIndex { return d.Index }

func sameHost(a, b *snapshot.Snapshot) bool {
	return reflect.DeepEqual(a.UTCOffset, b.UTCOffset) && reflect.DeepEqual(a.Extensions, b.Extensions)
}

// adjust appends the numbers that make one item of another one; same is true if none are needed,
// and ok false if numbers are not enough.
type adjust[T any] func(b []byte, before, after *T) (_ []byte, same, ok bool)

// script returns the steps and their number, and adds the new items to fresh.
func script[T any, ID comparable](before, after []T, id func(*T) ID, adjusted adjust[T], fresh *[]T) (b []byte, steps int) {
	find := finder(before, id)
	var count uint64
	kind := uint64(stepKeep)
	flush := func() {
		if count > 0 {
			b = binary.AppendUvarint(b, count<<stepBits|kind)
			steps++
		}
		count = 0
	}
	put := func(k, n uint64) {
		if k != kind {
			flush()
			kind = k
		}
		count += n
	}
	next := 0 // in before
	changed := false
	for i := range after {
		item := &after[i]
		if at := find(id(item), next); at >= next {
			numbers, same, ok := adjusted(nil, &before[at], item)
			if same || ok {
				if at > next {
					put(stepDrop, uint64(at-next))
					changed = true
				}
				next = at + 1
				if same {
					put(stepKeep, 1)
					continue
				}
				flush()
				b = append(binary.AppendUvarint(b, 1<<stepBits|stepAdjust), numbers...)
				steps++
				changed = true
				continue
			}
		}
		put(stepNew, 1)
		*fresh = append(*fresh, *item)
		changed = true
	}
	if next < len(before) {
		put(stepDrop, uint64(len(before)-next))
		changed = true
	}
	if !changed {
		return nil, 0
	}
	flush()
	return b, steps
}

// finder returns what finds an item by its id, or -1. It should be at the place that is expected.
func finder[T any, ID comparable](items []T, id func(*T) ID) func(ID, int) int {
	var place map[ID]int
	return func(wanted ID, expected int) int {
		if expected < len(items) && id(&items[expected]) == wanted {
			return expected
		}
		if place == nil {
			place = make(map[ID]int, len(items))
			for i := range items {
				place[id(&items[i])] = i
			}
		}
		if at, known := place[wanted]; known {
			return at
		}
		return -1
	}
}

func adjustEnvironment(b []byte, before, after *snapshot.Environment) (_ []byte, same, ok bool) {
	same = sameEnvironment(before, after)
	return b, same, same
}

// adjustProcess appends by how many MiB the memory on each device changed.
func adjustProcess(b []byte, before, after *snapshot.Process) (_ []byte, same, ok bool) {
	if len(before.Usage) != len(after.Usage) || !sameProcess(before, after) {
		return b, false, false
	}
	same = true
	for i := range before.Usage {
		x, y := &before.Usage[i], &after.Usage[i]
		var more int64
		if *x != *y {
			if x.Index != y.Index || !inMiB(x.Memory) || !inMiB(y.Memory) {
				return b, false, false
			}
			same, more = false, y.Memory.Bytes()>>20-x.Memory.Bytes()>>20
		}
		b = binary.AppendVarint(b, more)
	}
	return b, same, true
}

// inMiB reports whether an amount is written as nvidia-smi does.
func inMiB(m snapshot.Memory) bool { return m == snapshot.MiB(m.Bytes()>>20) }

// adjustDevice appends the utilization, and 0 if it isn't known.
func adjustDevice(b []byte, before, after *snapshot.Device) (_ []byte, same, ok bool) {
	if !sameDevice(before, after) {
		return b, false, false
	}
	if after.Utilization == nil {
		return append(b, 0), before.Utilization == nil, true
	}
	same = before.Utilization != nil && *before.Utilization == *after.Utilization
	return binary.AppendUvarint(b, uint64(*after.Utilization)+1), same, true
}
