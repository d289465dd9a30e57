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
)

const (
	schema = "genv.controller.handover/1"
	// maxMemory is how long a memory may be, as etcd keeps it: its requests have at most 1.5 MiB.
	maxMemory = 1 << 20
	// maxDocument is how long a document may be that is read.
	maxDocument = 256 << 20
)

// head is what is written after each cycle.
type head struct {
	Schema   string          `json:"schema"`
	Epoch    uint64          `json:"epoch"`            // of the leader that wrote it
	Time     time.Time       `json:"time"`             // when it was written, by the leader's clock
	Judged   time.Time       `json:"judged"`           // see enforce.Memory.Time
	Clock    time.Time       `json:"clock"`            // see clockOf
	Memory   []byte          `json:"memory,omitempty"` // the hash of the memory, as it is written; none if that is too long
	Operator json.RawMessage `json:"operator"`
	Mail     mail.Sent       `json:"mail,omitzero"`
}

// content is what is written when it has changed.
type content struct {
	Clock  time.Time              `json:"clock"` // see clockOf
	Memory controller.FleetMemory `json:"memory"`
}

// Document is a memory as etcd keeps it.
type Document struct {
	made time.Time // by a clock that can't be set, where there is one
	head head
	data []byte            // nil if it is longer than etcd takes
	sum  [sha256.Size]byte // changes when data has to be written again
}

// Encode returns the memory, with its times by the clock of now.
func Encode(m *controller.FleetMemory, now time.Time) (*Document, error) {
	kept, err := m.Operator.Encode(now)
	if err != nil {
		return nil, err
	}
	current := *m
	current.Rules = m.Rules.At(now)
	d := &Document{made: now, head: head{
		Schema: schema, Time: now.Round(0).UTC(), Judged: current.Rules.Time.Round(0).UTC(), Clock: clockOf(now),
		Operator: kept, Mail: m.Mail.Sent,
	}}
	if d.sum, err = sumOf(m); err != nil {
		return nil, err
	}
	current.Rules.Time, current.Mail.Sent = time.Time{}, mail.Sent{} // the head has them
	if d.data, err = pack(content{d.head.Clock, current}); err != nil {
		return nil, err
	}
	if len(d.data) > maxMemory {
		d.data = nil
	}
	return d, nil
}

// TooLong reports whether the memory is longer than etcd takes.
func (d *Document) TooLong() bool { return d.data == nil }

// countedCycles is up to how many cycles of a finding the memory is written for each of them. What
// a policy lets pass before it acts is less.
const countedCycles = 64

// sumOf is a checksum of what is known, by the clocks by which it became known: small corrections
// of a clock don't change it.
func sumOf(m *controller.FleetMemory) ([sha256.Size]byte, error) {
	compared := *m
	compared.Rules.Time, compared.Mail.Sent = time.Time{}, mail.Sent{}
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

// differ reports whether documents have times of different clocks.
func differ(a, b time.Time) bool { return beyondTolerated(a.Sub(b)) != 0 }

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
