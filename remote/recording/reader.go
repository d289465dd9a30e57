package recording

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// Reader reads a file, one judgement after the other, in a bounded amount of memory.
type Reader struct {
	// Header is of the file.
	Header Header
	// Unknown counts records that a later version of genv may have written.
	Unknown int

	chunks  *chunkReader
	fields  fields // of the current chunk
	hosts   []snapshot.Host
	last    []*snapshot.Snapshot // of each host, also of one that doesn't answer
	policy  *Policy
	state   operator.State
	boosts  map[snapshot.Username]int
	pending Step // what is known of the next step
	ended   bool
}

// maxHosts is how many hosts a file may have.
const maxHosts = 100_000

// NewReader reads the beginning of a file. Close ends it.
func NewReader(r io.Reader) (*Reader, error) {
	chunks, err := newChunkReader(r)
	if err != nil {
		return nil, err
	}
	reader := &Reader{chunks: chunks}
	kind, body, err := reader.record()
	if err == nil && kind != kindHeader {
		err = fmt.Errorf("%w: it has no header", errFormat)
	}
	if err == nil {
		err = decode(body, &reader.Header)
	}
	if err == nil && reader.Header.Schema != Schema {
		err = fmt.Errorf("%w: its schema is %q", errFormat, reader.Header.Schema)
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w at its beginning", ErrCut)
	}
	if err != nil {
		reader.Close()
		return nil, err
	}
	return reader, nil
}

// Close frees what the Reader uses. It doesn't close the file.
func (r *Reader) Close() { r.chunks.close() }

// Next returns the next judgement. What it has is not changed by later calls. It returns io.EOF at
// the end of a complete file, ErrCut at the end of one that ends otherwise, and ErrDamaged or
// ErrInvalid where it can't be read on.
func (r *Reader) Next() (*Step, error) {
	for {
		kind, body, err := r.record()
		if errors.Is(err, io.EOF) && !r.ended {
			err = fmt.Errorf("%w at byte %d, between two parts", ErrCut, r.chunks.offset)
		}
		if err != nil {
			return nil, err
		}
		if kind == kindJudged {
			return r.judged(body)
		}
		if err := r.take(kind, body); err != nil {
			return nil, err
		}
	}
}

// Gaps are the times without a record at the end, after Next has returned an error.
func (r *Reader) Gaps() []Gap { return r.pending.Gaps }

// record is the next record. What it returns is valid until it is called again.
func (r *Reader) record() (kind byte, body []byte, err error) {
	for len(r.fields.data) == 0 {
		data, err := r.chunks.next()
		if err != nil {
			return 0, nil, err
		}
		r.fields = fields{data: data}
	}
	kind, body = r.fields.byte(), r.fields.bytes()
	return kind, body, r.fields.err
}

func decode(body []byte, into any) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// take takes in a record that a later judgement refers to.
func (r *Reader) take(kind byte, body []byte) error {
	switch kind {
	case kindPolicy:
		r.policy = new(Policy)
		return decode(body, r.policy)
	case kindOperator:
		r.state = operator.State{}
		return decode(body, &r.state)
	case kindBoosts:
		r.boosts = nil
		return decode(body, &r.boosts)
	case kindHosts:
		return r.takeHosts(body)
	case kindMemory:
		r.pending.Memory = new(MemoryChange)
		return decode(body, r.pending.Memory)
	case kindGap:
		var g Gap
		err := decode(body, &g)
		r.pending.Gaps = append(r.pending.Gaps, g)
		return err
	case kindSnapshot, kindSilent:
		return r.takeHost(kind, &fields{data: body})
	case kindEnd:
		r.ended = true
	default:
		r.Unknown++
	}
	return nil
}

func (r *Reader) takeHosts(body []byte) error {
	var names []hostName
	if err := decode(body, &names); err != nil {
		return err
	}
	if len(names) > maxHosts {
		return fmt.Errorf("%w: %d hosts", ErrInvalid, len(names))
	}
	type known struct {
		host snapshot.Host
		last *snapshot.Snapshot
	}
	before := make(map[snapshot.Hostname]known, len(r.hosts))
	for i, h := range r.hosts {
		before[h.Name] = known{h, r.last[i]}
	}
	r.hosts, r.last = make([]snapshot.Host, len(names)), make([]*snapshot.Snapshot, len(names))
	seen := make(map[snapshot.Hostname]bool, len(names))
	for i, n := range names {
		if seen[n.Name] {
			return fmt.Errorf("%w: host %s is listed twice", ErrInvalid, n.Name)
		}
		seen[n.Name] = true
		k, ok := before[n.Name]
		if !ok {
			k = known{snapshot.Host{Err: silent(notAsked)}, new(snapshot.Snapshot)}
		}
		k.host.Name, k.host.Labels = n.Name, n.Labels
		r.hosts[i], r.last[i] = k.host, k.last
	}
	return nil
}

func (r *Reader) hostNumber(f *fields) int {
	n := f.uvarint()
	if n >= uint64(len(r.hosts)) {
		f.fail("it is about a host that is not listed")
		return 0
	}
	return int(n)
}

func (r *Reader) takeHost(kind byte, f *fields) error {
	i := r.hostNumber(f)
	if f.err != nil {
		return f.err
	}
	h := &r.hosts[i]
	if kind == kindSilent {
		h.Snapshot, h.Err = nil, silent(f.data)
		return nil
	}
	s, err := applyDelta(r.last[i], f.data)
	if err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	r.last[i], h.Snapshot, h.Err = s, s, nil
	return nil
}

// judged completes a step.
func (r *Reader) judged(body []byte) (*Step, error) {
	f := &fields{data: body}
	s := r.pending
	s.Header = &r.Header
	r.pending = Step{}
	nanoseconds, offset := f.varint(), f.varint()
	if offset < -24*60*60 || offset > 24*60*60 {
		f.fail("a time zone that can't be")
	}
	s.Time = time.Unix(0, nanoseconds).In(time.FixedZone("", int(offset)))
	s.DryRun = f.byte()&flagDryRun != 0
	s.Number, s.Early = int(f.uvarint()), int(f.uvarint())
	for i := range s.Digest {
		s.Digest[i] = f.byte()
	}
	s.Run = string(f.bytes())
	s.Policy, s.Operator, s.Boosts = r.policy, r.state, r.boosts
	if s.Early == 0 {
		s.Cluster.Hosts = slices.Clone(r.hosts)
		return &s, f.end()
	}
	n := f.uvarint()
	for range min(n, uint64(len(r.hosts))) {
		if i := r.hostNumber(f); f.err == nil {
			s.Cluster.Hosts = append(s.Cluster.Hosts, r.hosts[i])
		}
	}
	return &s, f.end()
}
