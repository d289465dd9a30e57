package handover

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
)

const (
	schema = "genv.controller.handover/1"
	// maxPart is how long a part may be, as etcd keeps it: its requests have at most 1.5 MiB.
	maxPart = 1 << 20
	// maxDocument is how long a document may be that is read.
	maxDocument = 256 << 20
)

// head is what belongs to all parts.
type head struct {
	Schema   string          `json:"schema"`
	Epoch    uint64          `json:"epoch"`             // of the leader that wrote it
	Time     time.Time       `json:"time"`              // when it was written, by the leader's clock
	Judged   time.Time       `json:"judged"`            // see enforce.Memory.Time
	Clock    time.Time       `json:"clock,omitzero"`    // see clockOf
	Parts    []int           `json:"parts"`             // that there are
	Missing  int             `json:"missing,omitempty"` // that are not written yet
	Operator json.RawMessage `json:"operator"`
	Mail     mail.Sent       `json:"mail,omitzero"`
}

// part is a part of the memory.
type part struct {
	Schema string                 `json:"schema"`
	Clock  time.Time              `json:"clock,omitzero"` // see clockOf
	Memory controller.FleetMemory `json:"memory"`
}

// Documents are a memory as etcd keeps it.
type Documents struct {
	made  time.Time // by a clock that can't be set, where there is one
	head  head
	parts [parts][]byte // nil for one that is empty, or longer than etcd takes
	// sums change when a part has to be written again.
	sums [parts][sha256.Size]byte
	// TooLong is how many parts are longer than etcd takes.
	TooLong int
}

// Encode returns the memory, with its times by the clock of now.
func Encode(m *controller.FleetMemory, now time.Time) (*Documents, error) {
	kept, err := m.Operator.Encode(now)
	if err != nil {
		return nil, err
	}
	current := *m
	current.Rules = m.Rules.At(now)
	d := &Documents{made: now, head: head{
		Schema: schema, Time: now.Round(0).UTC(), Judged: current.Rules.Time.Round(0).UTC(), Clock: clockOf(now),
		Operator: kept, Mail: m.Mail.Sent,
	}}
	encoded, filled := split(&current)
	compared, _ := split(m)
	for i := range encoded {
		if d.sums[i], err = sumOf(&compared[i]); err != nil {
			return nil, err
		}
		if !filled[i] {
			continue
		}
		if d.parts[i], err = pack(part{schema, d.head.Clock, encoded[i]}); err != nil {
			return nil, err
		}
		if len(d.parts[i]) > maxPart {
			d.parts[i] = nil
			d.TooLong++
		}
	}
	return d, nil
}

// countedCycles is up to how many cycles of a finding a part is written for each of them. What
// a policy lets pass before it acts is less.
const countedCycles = 64

// sumOf is a checksum of what is known, by the clocks by which it became known: small corrections
// of a clock don't change it.
func sumOf(m *controller.FleetMemory) ([sha256.Size]byte, error) {
	compared := *m
	compared.Rules.Present = make(map[string]enforce.Presence, len(m.Rules.Present))
	for key, p := range m.Rules.Present {
		p.Cycles = min(p.Cycles, countedCycles)
		compared.Rules.Present[key] = p
	}
	data, err := json.Marshal(compared)
	return sha256.Sum256(data), err
}

// started is any moment of this process.
var started = time.Now()

// clockOf identifies the clock of now by the time at which it shows started. That changes if the wall clock
// is set, since the time since then is measured by the monotonic clock.
func clockOf(now time.Time) time.Time { return now.Add(-now.Sub(started)).Round(0).UTC() }

// differ reports whether documents have times of different clocks. Zero means that it isn't known: the
// document is from a version that didn't write it.
func differ(a, b time.Time) bool {
	return !a.IsZero() && !b.IsZero() && beyondTolerated(a.Sub(b)) != 0
}

// unpack reads a document of another controller.
func unpack(data []byte, document any) error {
	return unpackWithin(data, maxDocument, document)
}

func (h *head) check() error {
	if h.Schema != schema {
		return fmt.Errorf("it is of another version: %q", h.Schema)
	}
	return nil
}

// operator is what operators asked for.
func (h *head) operator(now time.Time) (operator.State, error) {
	return operator.Decode(h.Operator, now)
}

// writers are kept, since each has tables of almost a megabyte, and documents are written every second.
var writers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// pack returns a document as controllers keep it in etcd: JSON, compressed.
func pack(document any) ([]byte, error) {
	var b bytes.Buffer
	w := writers.Get().(*gzip.Writer)
	defer writers.Put(w)
	w.Reset(&b)
	if err := json.NewEncoder(w).Encode(document); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// unpackWithin reads what pack compressed into a document. JSON of more than limit bytes is an error: whoever can
// write to etcd may have made it up.
func unpackWithin(data []byte, limit int, document any) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if err != nil {
		return err
	}
	if len(text) > limit {
		return fmt.Errorf("it has more than %d bytes", limit)
	}
	return json.Unmarshal(text, document)
}
