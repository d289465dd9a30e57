package election

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Registration describes a running controller for `genv remote doctor`.
type Registration struct {
	Candidate
	Host     string    `json:"host"`               // the name of its machine, as that calls itself
	Version  string    `json:"version"`            // of genv
	Cycled   time.Time `json:"cycled,omitzero"`    // when its last round ended, by its own clock
	Interval float64   `json:"interval,omitempty"` // between two rounds, in seconds
	// HostsDigest and Policy are the same for the same hosts and for equal policies, and empty from an older genv.
	Hosts       int    `json:"hosts,omitempty"`
	HostsDigest string `json:"hosts_digest,omitempty"`
	Policy      string `json:"policy,omitempty"`
	Answered    *int   `json:"answered,omitempty"` // how many hosts did in the last round; nil if unknown
	Lost        bool   `json:"-"`                  // it crashed, or can't reach etcd
}

const registrationSchema = "genv.election.controller/1"

type storedRegistration struct {
	Schema string `json:"schema"`
	Registration
}

func registeredPrefix(key string) string { return key + "/controllers/" }

// name differs even for copies of a state folder on other machines.
func (r *Registration) name() string { return r.ID + "@" + r.Host }

const (
	RegisteredFor = 10 * time.Second // after a renewal; then the controller is lost
	registerEvery = 2 * time.Second  // how often it renews its lease
	rewriteEvery  = time.Minute      // how often it writes an unchanged key: an operator may have deleted it
	keepLost      = 7 * 24 * time.Hour
)

// Registry keeps registrations; *etcd.Gateway is one.
type Registry interface {
	Grant(ctx context.Context, ttl time.Duration) (lease int64, granted time.Duration, err error)
	KeepAlive(ctx context.Context, lease int64) (ttl time.Duration, err error)
	// TimeToLive is how long a lease still lasts, and its whole TTL; 0 for one that has ended.
	TimeToLive(ctx context.Context, lease int64) (left, granted time.Duration, err error)
	Revoke(ctx context.Context, lease int64) error
	Put(ctx context.Context, key string, value []byte, lease int64) error
	List(ctx context.Context, prefix string) ([]etcd.KeyValue, error)
}

// Registered returns the controllers of an election that run or are Lost, sorted by name. It skips unreadable ones.
func Registered(ctx context.Context, r Registry, key string) (list []Registration, err error) {
	prefix := registeredPrefix(key)
	entries, err := r.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var s storedRegistration
		if json.Unmarshal(e.Value, &s) != nil || s.Schema != registrationSchema ||
			s.name() != strings.TrimPrefix(string(e.Key), prefix) {
			continue
		}
		left, granted, err := r.TimeToLive(ctx, e.Lease)
		if err != nil {
			return nil, err
		}
		s.Lost = granted-left > RegisteredFor
		list = append(list, s.Registration)
	}
	slices.SortFunc(list, func(a, b Registration) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

// Registrar keeps a controller registered by a key with a lease. Set is safe for concurrent use; Run is called once.
type Registrar struct {
	cluster Registry
	key     string
	refused func(error)
	lease   int64  // 0 for none
	written []byte // nil if unknown
	wrote   time.Time

	mu   sync.Mutex
	self Registration
}

// NewRegistrar returns a Registrar for an election. Run calls refused once if etcd refuses it.
func NewRegistrar(cluster Registry, key string, self Registration, refused func(error)) *Registrar {
	return &Registrar{cluster: cluster, key: registeredPrefix(key) + self.name(), self: self, refused: refused}
}

// Set changes the registration, except its ID and Host. It is written within some seconds.
func (r *Registrar) Set(change func(*Registration)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.self)
}

// Run registers the controller until ctx ends, and then removes the registration. While etcd doesn't answer, which the
// election reports, it tries again.
func (r *Registrar) Run(ctx context.Context) {
	said := false
	ticker := time.NewTicker(registerEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, RegisteredFor)
		if err := r.register(limited); etcd.Refused(err) && !said {
			said = true
			r.refused(err)
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
	if r.lease != 0 {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignWithin)
		defer cancel()
		_ = r.cluster.Revoke(limited, r.lease) // after an error the controller counts as lost
	}
}

func (r *Registrar) register(ctx context.Context) error {
	r.mu.Lock()
	value, err := json.Marshal(storedRegistration{registrationSchema, r.self})
	r.mu.Unlock()
	if err != nil {
		return err
	}
	ttl := time.Duration(0)
	if r.lease != 0 {
		if ttl, err = r.cluster.KeepAlive(ctx, r.lease); err != nil {
			return err
		}
	}
	if ttl == 0 { // there is no lease, or it has ended
		if r.lease, _, err = r.cluster.Grant(ctx, keepLost); err != nil {
			return err
		}
		r.written = nil
	}
	now := time.Now()
	if bytes.Equal(value, r.written) && now.Sub(r.wrote) < rewriteEvery {
		return nil
	}
	r.written = nil // a write without an answer may have been done
	if err := r.cluster.Put(ctx, r.key, value, r.lease); err != nil {
		return err
	}
	r.written, r.wrote = value, now
	return nil
}
