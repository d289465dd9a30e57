package recording

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
)

// Writer writes a file. It is not safe for concurrent use. After an error, the file is as long as
// it was, or ends in a part that readers leave out: begin another file then.
type Writer struct {
	chunks *chunkWriter
	buf    []byte // records that wait
	header Header
	begun  bool

	base     time.Time // the first moment; all others are as far from it as the monotonic clock says
	policy   *Policy
	operator []byte
	boosts   map[snapshot.Username]int
	hosts    []hostName
	number   map[snapshot.Hostname]int
	states   map[snapshot.Hostname]*hostState
	memory   enforce.Memory // that the last judgement returned
}

// hostState is what was written last about a host.
type hostState struct {
	seen   *snapshot.Snapshot // as it came
	kept   *snapshot.Snapshot // what Judged left of it
	silent string             // why it did not answer; empty if it did
}

// NewWriter begins a file. The header's Schema, Begun and Offset are filled in.
func NewWriter(w io.Writer, header Header) *Writer {
	return &Writer{chunks: &chunkWriter{w: w}, header: header, states: make(map[snapshot.Hostname]*hostState)}
}

// Size is how many bytes were written, and Waiting how many records wait for Flush, in bytes
// before they are compressed.
func (w *Writer) Size() int64 { return w.chunks.size }

// Waiting is described with Size.
func (w *Writer) Waiting() int { return len(w.buf) }

// Input is a judgement as it took place. Before is what it knew of earlier cycles, and After what
// it returned.
type Input struct {
	Judgement
	Before, After enforce.Memory
	// Plan and Events are what came of it, for a caller who computes the Digest of them later. They
	// are not written.
	Plan   *enforce.Plan
	Events []enforce.Event
}

// Add adds a judgement, which is written with the next Flush.
func (w *Writer) Add(in *Input) error {
	first := !w.begun
	if first {
		w.base = in.Time
		if err := w.begin(); err != nil {
			return err
		}
	}
	if err := errors.Join(w.addSettings(in), w.addHosts(in)); err != nil {
		return err
	}
	for i := range in.Cluster.Hosts {
		if err := cmp.Or(w.addHost(&in.Cluster.Hosts[i]), w.flushBeyond(flushBytes)); err != nil {
			return err
		}
	}
	change, changed := changeOf(&w.memory, &in.Before)
	if first {
		change, changed = whole(&in.Before), true
	}
	if changed {
		change.Set = at(change.Set, w.base)
		if err := w.addJSON(kindMemory, &change); err != nil {
			return err
		}
	}
	w.addJudged(in)
	w.memory = in.After
	return nil
}

// at is a memory with its times on the clock of base.
func at(m enforce.Memory, base time.Time) enforce.Memory {
	next := m.At(base)
	if m.Time.IsZero() {
		next.Time = time.Time{}
	}
	return next
}

// Gap adds a time for which nothing is recorded.
func (w *Writer) Gap(g Gap) error {
	if !w.begun {
		w.base = g.Until
		if err := w.begin(); err != nil {
			return err
		}
	}
	return w.addJSON(kindGap, g)
}

// Clock is by how much the wall clock was set since the file began.
func (w *Writer) Clock(now time.Time) time.Duration {
	if !w.begun {
		return 0
	}
	return now.Round(0).Sub(w.base.Round(0)) - now.Sub(w.base)
}

func (w *Writer) begin() error {
	w.begun = true
	_, offset := w.base.Zone()
	w.header.Schema, w.header.Begun, w.header.Offset = Schema, w.base.Round(0), offset
	return w.addJSON(kindHeader, w.header)
}

func (w *Writer) add(kind byte, body []byte) {
	w.buf = append(w.buf, kind)
	w.buf = binary.AppendUvarint(w.buf, uint64(len(body)))
	w.buf = append(w.buf, body...)
}

func (w *Writer) addJSON(kind byte, v any) error {
	data, err := snapshot.Marshal(v)
	if err == nil {
		w.add(kind, data)
	}
	return err
}

// addSettings adds the policy, what operators asked for, and who has a boost, if they changed.
func (w *Writer) addSettings(in *Input) error {
	if in.Policy != nil && in.Policy != w.policy {
		if err := w.addJSON(kindPolicy, in.Policy); err != nil {
			return err
		}
		w.policy = in.Policy
	}
	state, err := json.Marshal(in.Operator)
	if err != nil {
		return err
	}
	if string(state) != string(w.operator) {
		w.operator = state
		w.add(kindOperator, state)
	}
	if in.Early == 0 && !maps.Equal(in.Boosts, w.boosts) {
		w.boosts = in.Boosts
		if err := w.addJSON(kindBoosts, in.Boosts); err != nil {
			return err
		}
	}
	return nil
}

// addHosts adds which hosts there are, if that changed.
func (w *Writer) addHosts(in *Input) error {
	if in.Early > 0 || slices.EqualFunc(w.hosts, in.Cluster.Hosts, func(a hostName, b snapshot.Host) bool {
		return a.Name == b.Name && maps.Equal(a.Labels, b.Labels)
	}) {
		return nil
	}
	w.hosts = make([]hostName, len(in.Cluster.Hosts))
	w.number = make(map[snapshot.Hostname]int, len(w.hosts))
	states := make(map[snapshot.Hostname]*hostState, len(w.hosts))
	for i := range in.Cluster.Hosts {
		h := &in.Cluster.Hosts[i]
		w.hosts[i], w.number[h.Name] = hostName{h.Name, h.Labels}, i
		if states[h.Name] = w.states[h.Name]; states[h.Name] == nil {
			states[h.Name] = &hostState{kept: new(snapshot.Snapshot), silent: notAsked}
		}
	}
	w.states = states
	return w.addJSON(kindHosts, w.hosts)
}

// notAsked is why a host has no snapshot before the first one.
const notAsked = "not-asked"

// addHost adds what changed on a host.
func (w *Writer) addHost(h *snapshot.Host) error {
	state := w.states[h.Name]
	if state == nil {
		return errUnknownHost
	}
	number := binary.AppendUvarint(nil, uint64(w.number[h.Name]))
	if h.Err != nil || h.Snapshot == nil {
		why := kindOf(h.Err)
		if why != state.silent {
			state.silent = why
			w.add(kindSilent, append(number, why...))
		}
		return nil
	}
	if state.silent == "" && state.seen == h.Snapshot {
		return nil
	}
	kept := Judged(h.Snapshot)
	body, changed, err := appendDelta(number, state.kept, kept)
	if err != nil {
		return err
	}
	if changed || state.silent != "" {
		w.add(kindSnapshot, body)
	}
	state.seen, state.kept, state.silent = h.Snapshot, kept, ""
	return nil
}

// errUnknownHost says that an early judgement is about a host that the full one had not.
var errUnknownHost = errors.New("a host was judged between two cycles that was in neither")

func (w *Writer) addJudged(in *Input) {
	at := w.base.Round(0).Add(in.Time.Sub(w.base))
	_, offset := in.Time.Zone()
	b := binary.AppendVarint(nil, at.UnixNano())
	b = binary.AppendVarint(b, int64(offset))
	var flags byte
	if in.DryRun {
		flags |= flagDryRun
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(in.Number))
	b = binary.AppendUvarint(b, uint64(in.Early))
	b = append(b, in.Digest[:]...)
	b = binary.AppendUvarint(b, uint64(len(in.Run)))
	b = append(b, in.Run...)
	if in.Early > 0 {
		b = binary.AppendUvarint(b, uint64(len(in.Cluster.Hosts)))
		for i := range in.Cluster.Hosts {
			b = binary.AppendUvarint(b, uint64(w.number[in.Cluster.Hosts[i].Name]))
		}
	}
	w.add(kindJudged, b)
}

// flushBytes is how much a part has, unless a record has more.
const flushBytes = 1 << 20

func (w *Writer) flushBeyond(bytes int) error {
	if len(w.buf) < bytes {
		return nil
	}
	return w.Flush()
}

// Flush compresses and writes what was added, as one part that readers read whole or not at all.
func (w *Writer) Flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	err := w.chunks.write(w.buf)
	w.buf = w.buf[:0]
	return err
}

// Close writes what was added, and that the file is complete.
func (w *Writer) Close() error {
	if !w.begun {
		return nil
	}
	w.add(kindEnd, nil)
	return cmp.Or(w.Flush(), w.chunks.close())
}
