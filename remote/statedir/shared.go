package statedir

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/operator"
)

// Cluster is where Shared keeps the memory, such as *etcd.Gateway.
type Cluster interface {
	Get(ctx context.Context, key string) (*etcd.KeyValue, error)
	// PutAfter writes if guard was created, and key modified, in these revisions; else it returns etcd.ErrConflict.
	PutAfter(
		ctx context.Context, guard string, created uint64, key string, modified uint64, value []byte,
	) (uint64, error)
}

// Shared is a controller.Store for a leader's term: in etcd for the next leader, and in its own folder.
type Shared struct {
	Folder   *Folder
	Cluster  Cluster
	Key      string    // of the election
	Self     string    // ID of this controller
	Epoch    uint64    // of the term
	Followed time.Time // when another controller last led, by our clock; zero if none did

	known    bool   // modified is valid
	modified uint64 // revision of the last write of the document
}

// sharedMemory is compressed JSON in etcd.
type sharedMemory struct {
	Schema string           `json:"schema"`
	Time   time.Time        `json:"time"` // of the write, by the leader's clock
	By     string           `json:"by"`   // ID of the leader
	Saved  controller.Saved `json:"saved"`
}

const (
	schema      = "genv.controller.shared/1"
	maxShared   = 1 << 20   // compressed bytes: etcd's requests are limited to 1.5 MiB
	maxDocument = 256 << 20 // bytes of JSON: anyone who can write to etcd may have made it

	// saveWithin is enough to ask a second member. Orders wait for it.
	saveWithin   = 2 * time.Second
	loadTries    = 10 // attempts of a new leader, each up to saveWithin, while it leads
	loadAgain    = 100 * time.Millisecond
	writesWithin = 15 * time.Second // usual maximum age of a document while its writer leads
)

func sharedKey(key string) string { return key + "/memory/document" }

// ErrTooLarge means that etcd has only operators' requests.
var ErrTooLarge = errors.New("it is too large for etcd")

// NotSharedError means that a memory is only in the folder.
type NotSharedError struct{ Err error }

func (e *NotSharedError) Error() string {
	return fmt.Sprintf("kept here, but not in etcd, so it is lost if another controller takes over: %v", e.Err)
}

func (e *NotSharedError) Unwrap() error { return e.Err }

// Load implements controller.Store, with the previous leader's memory from etcd or, if we led, our folder, which also
// has what etcd didn't take.
func (s *Shared) Load(ctx context.Context) (controller.FleetMemory, error) {
	now := s.Folder.Now()
	own, ownTime, ownErr := s.Folder.load(now)
	d, err := s.read(ctx)
	switch {
	case err != nil:
		if errors.Is(err, errDamaged) {
			own.Operator = own.Operator.With(operator.Lost(now))
		}
		return own, errors.Join(fmt.Errorf("the memory of the previous leader can't be used, so this controller "+
			"continues with its own: %w", err), ownErr)
	case d == nil, d.By == s.Self && ownErr == nil && !ownTime.Before(d.Time):
		return own, ownErr
	}
	m, err := d.decode(now, s.Followed)
	status, statErr := s.Folder.folder.Stat(operatorName)
	if statErr == nil && time.Unix(status.Mtim.Unix()).After(d.Time) { // changed while no controller ran
		m.Operator = m.Operator.With(own.Operator)
	}
	return m, err
}

// decode returns a memory with times by our clock. The leader's was ahead if the document is from the future, behind if
// the leader was seen long after it.
func (d *sharedMemory) decode(now, followed time.Time) (m controller.FleetMemory, err error) {
	behind := min(0, now.Sub(d.Time))
	if late := followed.Sub(d.Time); late > writesWithin {
		behind = late
	}
	if len(d.Saved.Memory) == 0 {
		err = ErrTooLarge
	} else {
		m, _, err = controller.DecodeMemory(d.Saved.Memory, now.Add(-behind))
		m.Rules = m.Rules.WithTimes(func(t time.Time) time.Time { return t.Add(behind) })
	}
	if err != nil {
		err = fmt.Errorf("the memory of the previous leader is not in etcd, so warning periods, idle times and "+
			"graces start again: %w", err)
	}
	if len(d.Saved.Operator) == 0 {
		return m, err
	}
	state, lost := operator.Decode(d.Saved.Operator, now)
	if lost != nil {
		state = operator.Lost(now)
		lost = fmt.Errorf("what operators asked for is not known, so enforcement is on hold until an operator "+
			"releases it: %w", lost)
	}
	m.Operator = state
	return m, errors.Join(err, lost)
}

var errDamaged = errors.New("it is damaged")

// read retries while this controller leads, which may do nothing before. nil: no document.
func (s *Shared) read(ctx context.Context) (*sharedMemory, error) {
	var entry *etcd.KeyValue
	var err error
	for range loadTries {
		if entry, err = s.get(ctx); err == nil || etcd.Refused(err) || remote.MayBegin(ctx) != nil ||
			!remote.Sleep(ctx, loadAgain) {
			break
		}
	}
	if err != nil || entry == nil {
		return nil, err
	}
	d := new(sharedMemory)
	if err = unpack(entry.Value, d); err == nil && d.Schema != schema {
		err = fmt.Errorf("%w: another version: %q", errDamaged, d.Schema)
	}
	return d, err
}

func (s *Shared) get(ctx context.Context) (*etcd.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, saveWithin)
	defer cancel()
	entry, err := s.Cluster.Get(ctx, sharedKey(s.Key))
	if err != nil {
		return nil, err
	}
	s.known, s.modified = true, 0
	if entry != nil {
		s.modified = entry.Modified
	}
	return entry, nil
}

// Save implements controller.Store. After a *NotSharedError no other controller can take over.
func (s *Shared) Save(ctx context.Context, saved controller.Saved) error {
	kept := s.Folder.Save(ctx, saved)
	if err := s.share(ctx, saved); err != nil {
		return errors.Join(kept, &NotSharedError{err})
	}
	return kept
}

func (s *Shared) share(ctx context.Context, saved controller.Saved) error {
	d := sharedMemory{Schema: schema, Time: s.Folder.Now().Round(0).UTC(), By: s.Self, Saved: saved}
	data, err := pack(d)
	tooLarge := err == nil && len(data) > maxShared
	if tooLarge {
		d.Saved.Memory = nil
		data, err = pack(d)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, saveWithin)
	defer cancel()
	if !s.known { // a write without an answer may take effect, even late
		if _, err := s.get(ctx); err != nil {
			return err
		}
	}
	modified, err := s.Cluster.PutAfter(ctx, election.LeaderKey(s.Key), s.Epoch, sharedKey(s.Key), s.modified, data)
	s.modified, s.known = modified, err == nil
	if err == nil && tooLarge {
		err = ErrTooLarge
	}
	return err
}

// Written is when a leader last wrote to etcd, by its clock; zero if never.
func Written(ctx context.Context, cluster Cluster, key string) (time.Time, error) {
	entry, err := cluster.Get(ctx, sharedKey(key))
	if err != nil || entry == nil {
		return time.Time{}, err
	}
	var d sharedMemory
	err = unpack(entry.Value, &d)
	return d.Time, err
}

func pack(value any) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if err := errors.Join(json.NewEncoder(w).Encode(value), w.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// unpack reverses pack, up to maxDocument bytes of JSON.
func unpack(data []byte, value any) error {
	var text []byte
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(r, maxDocument+1))
	}
	if err == nil && len(text) > maxDocument {
		err = fmt.Errorf("more than %d bytes", maxDocument)
	}
	if err == nil {
		err = json.Unmarshal(text, value)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return nil
}
