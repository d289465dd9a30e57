package recording

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/seed-3119e985/genv/snapshot"
)

// ErrInvalid says that a record can't be one that was written: its checksum is right, but not what
// it says.
var ErrInvalid = errors.New("invalid record")

// fields reads numbers and texts one after the other. The first error stays.
type fields struct {
	data []byte
	err  error
}

func (f *fields) fail(what string) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s", ErrInvalid, what)
	}
	f.data = nil
}

func (f *fields) uvarint() uint64 {
	n, size := binary.Uvarint(f.data)
	if size <= 0 {
		f.fail("a number is missing")
		return 0
	}
	f.data = f.data[size:]
	return n
}

func (f *fields) varint() int64 {
	n, size := binary.Varint(f.data)
	if size <= 0 {
		f.fail("a number is missing")
		return 0
	}
	f.data = f.data[size:]
	return n
}

func (f *fields) byte() byte {
	if len(f.data) == 0 {
		f.fail("a byte is missing")
		return 0
	}
	b := f.data[0]
	f.data = f.data[1:]
	return b
}

// bytes reads a length and so many bytes.
func (f *fields) bytes() []byte {
	n := f.uvarint()
	if n > uint64(len(f.data)) {
		f.fail("a text is missing")
		return nil
	}
	b := f.data[:n]
	f.data = f.data[n:]
	return b
}

// end returns the first error, or that something is left over.
func (f *fields) end() error {
	if f.err == nil && len(f.data) > 0 {
		f.fail("something is left over")
	}
	return f.err
}

// step is one of a script.
type step struct {
	kind, count int
	numbers     []int64
}

// maxItems is how many processes, environments or devices a host may have, as in a snapshot.
const maxItems = 65536

// applyDelta makes a new snapshot of one and what appendDelta appended. It changes nothing of
// before, and its parts are shared.
func applyDelta(before *snapshot.Snapshot, data []byte) (*snapshot.Snapshot, error) {
	f := &fields{data: data}
	after := *before
	processes := readScript(f, before.Processes, numbersOfProcess)
	environments := readScript(f, before.Environments, noNumbers[snapshot.Environment])
	devices := readScript(f, before.Devices, oneNumber)
	flags := f.byte()
	fresh := &snapshot.Snapshot{}
	if flags&flagFresh != 0 {
		text := f.bytes()
		if f.err == nil {
			var err error
			if fresh, err = snapshot.DecodeNative(text); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
			}
		}
	}
	if flags&flagHost != 0 {
		after.UTCOffset, after.Extensions = fresh.UTCOffset, fresh.Extensions
	}
	if err := f.end(); err != nil {
		return nil, err
	}
	var badProcess, badEnvironment, badDevice error
	after.Processes, badProcess = run(processes, before.Processes, fresh.Processes, pidOf, setMemory)
	after.Environments, badEnvironment = run(environments, before.Environments, fresh.Environments, eidOf, refuseNumbers)
	after.Devices, badDevice = run(devices, before.Devices, fresh.Devices, indexOf, setUtilization)
	if err := errors.Join(badProcess, badEnvironment, badDevice); err != nil {
		return nil, err
	}
	return &after, nil
}

func refuseNumbers(e *snapshot.Environment, _ []int64) error {
	return fmt.Errorf("%w: environment %s has no numbers", ErrInvalid, e.EID)
}

func noNumbers[T any](*fields, *T) []int64 { return nil }

func oneNumber(f *fields, _ *snapshot.Device) []int64 { return []int64{int64(f.uvarint())} }

func numbersOfProcess(f *fields, p *snapshot.Process) []int64 {
	numbers := make([]int64, len(p.Usage))
	for i := range numbers {
		numbers[i] = f.varint()
	}
	return numbers
}

// readScript reads the steps for a list.
func readScript[T any](f *fields, before []T, numbers func(*fields, *T) []int64) []step {
	n := f.uvarint()
	if n > uint64(len(f.data)) {
		f.fail("steps are missing")
		return nil
	}
	steps := make([]step, 0, min(n, 64))
	place := uint64(0)
	for range n {
		v := f.uvarint()
		s := step{kind: int(v & (1<<stepBits - 1)), count: int(min(v>>stepBits, maxItems+1))}
		if s.kind != stepNew {
			if v>>stepBits > uint64(len(before))-place {
				f.fail("a step is about more items than there are")
			}
			if f.err == nil && s.kind == stepAdjust {
				if s.count != 1 {
					f.fail("a step adjusts one item")
				} else {
					s.numbers = numbers(f, &before[place])
				}
			}
			place += v >> stepBits
		}
		if f.err != nil {
			return nil
		}
		steps = append(steps, s)
	}
	return steps
}

// run carries out the steps for a list.
func run[T any, ID comparable](steps []step, before, fresh []T, id func(*T) ID, adjust func(*T, []int64) error) ([]T, error) {
	if len(steps) == 0 && len(fresh) == 0 {
		return before, nil
	}
	after := make([]T, 0, len(before)+len(fresh))
	place := 0
	for _, s := range steps {
		switch s.kind {
		case stepKeep:
			after = append(after, before[place:place+s.count]...)
			place += s.count
		case stepDrop:
			place += s.count
		case stepNew:
			if s.count > len(fresh) {
				return nil, fmt.Errorf("%w: new items are missing", ErrInvalid)
			}
			after, fresh = append(after, fresh[:s.count]...), fresh[s.count:]
		case stepAdjust:
			after = append(after, before[place])
			place++
			if err := adjust(&after[len(after)-1], s.numbers); err != nil {
				return nil, err
			}
		}
	}
	if len(fresh) > 0 {
		return nil, fmt.Errorf("%w: new items are left over", ErrInvalid)
	}
	return after, unique(after, id)
}

// unique refuses too many items, and two with the same id.
func unique[T any, ID comparable](items []T, id func(*T) ID) error {
	if len(items) > maxItems {
		return fmt.Errorf("%w: %d items are more than the maximum of %d", ErrInvalid, len(items), maxItems)
	}
	seen := make(map[ID]bool, len(items))
	for i := range items {
		key := id(&items[i])
		if seen[key] {
			return fmt.Errorf("%w: %v is listed twice", ErrInvalid, key)
		}
		seen[key] = true
	}
	return nil
}

// maxMiB is more memory than a process can use, in MiB.
const maxMiB = 1 << 40

func setMemory(p *snapshot.Process, more []int64) error {
	usage := make([]snapshot.DeviceUsage, len(p.Usage))
	for i, u := range p.Usage {
		if more[i] != 0 {
			total := u.Memory.Bytes()>>20 + more[i]
			if total < 0 || total > maxMiB || more[i] > maxMiB {
				return fmt.Errorf("%w: a process uses %d MiB", ErrInvalid, total)
			}
			u.Memory = snapshot.MiB(total)
		}
		usage[i] = u
	}
	p.Usage = usage
	return nil
}

func setUtilization(d *snapshot.Device, numbers []int64) error {
	if numbers[0] < 0 || numbers[0] > 101 {
		return fmt.Errorf("%w: a utilization of %d per cent", ErrInvalid, numbers[0]-1)
	}
	d.Utilization = nil
	if numbers[0] > 0 {
		percent := int(numbers[0] - 1)
		d.Utilization = &percent
	}
	return nil
}
