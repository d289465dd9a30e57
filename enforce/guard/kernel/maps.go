package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/snapshot"
)

const (
	eventsSize = 256 << 10 // bytes: 8,192 events
	limitsSize = 16384     // pairs of uid or process and minor that the limit of events remembers
	minorCount = 256
)

type maps struct {
	control *ebpf.Map // hash of one element: control
	minors  *ebpf.Map // array: the flags of each minor
	allowed *ebpf.Map // hash: Minors of each uid
	events  *ebpf.Map // ring buffer: record
	limits  *ebpf.Map // LRU: when the last event of a kind, uid or process, and minor was
	lost    *ebpf.Map // array of one element: events that the ring buffer had no room for
}

// all are the maps in a fixed order: a lasting failure has the same text each time. The hashes are not preallocated, so
// that the program can't read an element that another key has by now.
func (m *maps) all() iter.Seq2[**ebpf.Map, *ebpf.MapSpec] {
	spec := func(name string, kind ebpf.MapType, key, value, entries, flags uint32) *ebpf.MapSpec {
		return &ebpf.MapSpec{Name: name, Type: kind, KeySize: key, ValueSize: value, MaxEntries: entries, Flags: flags}
	}
	return func(yield func(**ebpf.Map, *ebpf.MapSpec) bool) {
		_ = yield(&m.control, spec("control", ebpf.Hash, 4, 16, 1, unix.BPF_F_NO_PREALLOC)) &&
			yield(&m.minors, spec("minors", ebpf.Array, 4, 4, minorCount, 0)) &&
			yield(&m.allowed, spec("allowed", ebpf.Hash, 4, 32, MaxUsers, unix.BPF_F_NO_PREALLOC)) &&
			yield(&m.events, spec("events", ebpf.RingBuf, 0, 0, eventsSize, 0)) &&
			yield(&m.limits, spec("limits", ebpf.LRUHash, 8, 8, limitsSize, 0)) &&
			yield(&m.lost, spec("lost", ebpf.Array, 4, 8, 1, 0))
	}
}

// With empty maps the program allows everything.
func createMaps() (*maps, error) {
	m := &maps{}
	for at, spec := range m.all() {
		name := spec.Name
		spec.Name = "genv_" + name
		created, err := ebpf.NewMap(spec)
		if errors.Is(err, unix.EPERM) && unlimitMemlock() == nil {
			created, err = ebpf.NewMap(spec)
		}
		if err != nil {
			m.close()
			return nil, classify("create the map "+name, err)
		}
		*at = created
	}
	return m, nil
}

// Before Linux 5.11 this limit counts BPF maps.
func unlimitMemlock() error {
	return unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
}

func loadMaps(dir string) (*maps, error) {
	m := &maps{}
	for at, spec := range m.all() {
		loaded, err := ebpf.LoadPinnedMap(filepath.Join(dir, spec.Name), nil)
		if *at = loaded; err == nil {
			err = spec.Compatible(loaded) // else the pins are of a genv that has other maps
		}
		if err != nil {
			m.close()
			return nil, fmt.Errorf("the pinned map %s: %w", spec.Name, err)
		}
	}
	return m, nil
}

func (m *maps) pin(dir string) error {
	for at, spec := range m.all() {
		if err := classify("pin the map "+spec.Name, (*at).Pin(filepath.Join(dir, spec.Name))); err != nil {
			return err
		}
	}
	return nil
}

func (m *maps) close() {
	for at := range m.all() {
		if *at != nil {
			_ = (*at).Close()
		}
	}
}

const modeEnforce = int32(guard.Enforce)

// Offsets in a record of the ring buffer, in native byte order.
const (
	recordPID   = 0 // of the process; 0 if the kernel doesn't say it
	recordUID   = 8
	recordMinor = 12
	recordKind  = 14
	recordSize  = 16
)

func parseRecord(b []byte) (e guard.DeviceOpen, ok bool) {
	if len(b) != recordSize {
		return guard.DeviceOpen{}, false
	}
	return guard.DeviceOpen{
		Kind:  guard.OpenKind(binary.NativeEndian.Uint16(b[recordKind:])),
		UID:   snapshot.UID(binary.NativeEndian.Uint32(b[recordUID:])),
		PID:   snapshot.PID(binary.NativeEndian.Uint32(b[recordPID:])),
		Minor: int(binary.NativeEndian.Uint16(b[recordMinor:])),
	}, true
}

// Events calls handle with each event, oldest first, until ctx ends, and returns its error. A machine has one reader at
// a time, since each event is read once. Without a reader, the buffer keeps what fits.
func (g *Guard) Events(ctx context.Context, handle func(guard.DeviceOpen)) error {
	reader, err := ringbuf.NewReader(g.maps.events)
	if err != nil {
		return fmt.Errorf("read the guard's events: %w", err)
	}
	defer reader.Close()
	defer context.AfterFunc(ctx, func() { _ = reader.Close() })()
	var record ringbuf.Record
	for {
		switch err := reader.ReadInto(&record); {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return fmt.Errorf("read the guard's events: %w", err)
		}
		if e, ok := parseRecord(record.RawSample); ok {
			handle(e)
		}
	}
}

// MaxUsers limits the users of a guard.
const MaxUsers = 65536

// SetAllowed sets which minors each user may open; others may open no guarded one. It only writes differences, and
// gives permissions before it takes others away. With ErrFull, some users have none; the rest is set.
func (g *Guard) SetAllowed(allowed map[snapshot.UID]guard.Minors) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, err := g.give(allowed); err != nil {
		return err
	}
	for uid := range g.allowed {
		if _, stays := allowed[uid]; stays {
			continue
		}
		if err := g.maps.allowed.Delete(uint32(uid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("take uid %d's permission away: %w", uid, err)
		}
		delete(g.allowed, uid)
	}
	left, err := g.give(allowed) // there may be room now
	if err != nil || left == 0 {
		return err
	}
	return fmt.Errorf("%w: %d of %d have no permission", guard.ErrFull, left, len(allowed))
}

// give returns how many users didn't fit.
func (g *Guard) give(allowed map[snapshot.UID]guard.Minors) (left int, err error) {
	for uid, minors := range allowed {
		if now, ok := g.allowed[uid]; ok && now == minors {
			continue
		}
		switch err := g.maps.allowed.Put(uint32(uid), &minors); {
		case errors.Is(err, unix.E2BIG):
			left++
		case err != nil:
			return left, fmt.Errorf("let uid %d open its GPUs: %w", uid, err)
		default:
			g.allowed[uid] = minors
		}
	}
	return left, nil
}

func (m *maps) readAllowed() (map[snapshot.UID]guard.Minors, error) {
	allowed := map[snapshot.UID]guard.Minors{}
	var uid uint32
	var minors guard.Minors
	it := m.allowed.Iterate()
	for it.Next(&uid, &minors) {
		allowed[snapshot.UID(uid)] = minors
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("read who may open what: %w", err)
	}
	return allowed, nil
}

// SetMinors sets the guarded devices. Their allowed opens are events, too, while the lease lasts.
func (g *Guard) SetMinors(guarded guard.Minors) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for minor := range uint32(guard.LastGPU + 1) {
		var is uint32
		if guarded.Has(int(minor)) {
			is = 1
		}
		if err := g.maps.minors.Put(minor, is); err != nil {
			return fmt.Errorf("guard minor %d: %w", minor, err)
		}
	}
	return nil
}
