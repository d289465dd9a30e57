package election

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// RegistrarCluster is what a Registrar asks; *etcd.Client is one.
type RegistrarCluster interface {
	Grant(ctx context.Context, ttl time.Duration) (etcd.Lease, error)
	KeepAlive(ctx context.Context, lease int64) (ttl time.Duration, err error)
	Revoke(ctx context.Context, lease int64) error
	Put(ctx context.Context, key string, value []byte, lease int64) error
}

// The times of registrations.
const (
	// RegisteredFor is how long a controller that says nothing is registered.
	RegisteredFor = 10 * time.Second
	// registerEvery is how often a registration is renewed, and written if it has changed.
	registerEvery = 2 * time.Second
	// keepKnown is how long a controller that is lost is remembered.
	keepKnown = 7 * 24 * time.Hour
	// renewKnownEvery is how often what is remembered is renewed, and its time of the last
	// cycle written.
	renewKnownEvery = time.Minute
)

// Registrar keeps a controller registered. Its methods are safe for concurrent use, but Run,
// which is called once.
type Registrar struct {
	cluster           RegistrarCluster
	refused           func(error)
	registered, known record

	mu   sync.Mutex
	self Registration
}

// NewRegistrar returns a Registrar for an election with this key. refused is called once, by Run, when
// etcd refuses a registration: the user may not be allowed to write these keys.
func NewRegistrar(cluster RegistrarCluster, key string, self Registration, refused func(error)) *Registrar {
	return &Registrar{
		cluster: cluster, self: self, refused: refused,
		registered: record{key: registeredPrefix(key) + self.name(), ttl: RegisteredFor, every: registerEvery},
		known:      record{key: knownPrefix(key) + self.name(), ttl: keepKnown, every: renewKnownEvery, anyway: true},
	}
}

// Set changes what the controller says about itself, but for its ID and Host. It is written within
// some seconds.
func (r *Registrar) Set(change func(*Registration)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.self)
}

// Run registers the controller until ctx ends. Then it takes the registration back. While etcd
// doesn't answer it tries again and again: the election says that.
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
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignWithin)
	defer cancel()
	for _, k := range []*record{&r.registered, &r.known} {
		if k.lease != 0 {
			_ = r.cluster.Revoke(limited, k.lease) // or it ends by itself
		}
	}
}

// register does what is due.
func (r *Registrar) register(ctx context.Context) error {
	r.mu.Lock()
	self := r.self
	r.mu.Unlock()
	return errors.Join(r.registered.keep(ctx, r.cluster, self), r.known.keep(ctx, r.cluster, self))
}

// record is a key that depends on a lease.
type record struct {
	key        string
	ttl, every time.Duration
	anyway     bool  // write it also if it hasn't changed: an operator may have deleted it
	lease      int64 // 0 for none
	written    []byte
	renewed    time.Time
}

// keep renews the lease, or makes one, and writes the key if it has changed or is written anyway.
func (k *record) keep(ctx context.Context, cluster RegistrarCluster, self Registration) error {
	now := time.Now()
	if k.lease != 0 && now.Sub(k.renewed) < k.every-registerEvery/2 {
		return nil
	}
	value, err := json.Marshal(stored{registrationSchema, self})
	if err != nil {
		return err
	}
	ttl := time.Duration(0)
	if k.lease != 0 {
		if ttl, err = cluster.KeepAlive(ctx, k.lease); err != nil {
			return err
		}
	}
	if ttl == 0 { // it is the first one, or has ended
		lease, err := cluster.Grant(ctx, k.ttl)
		if err != nil {
			return err
		}
		k.lease, k.written = lease.ID, nil
	}
	if k.anyway || !bytes.Equal(value, k.written) {
		if err := cluster.Put(ctx, k.key, value, k.lease); err != nil {
			k.written = nil // it may have been written
			return err
		}
	}
	k.written, k.renewed = value, now
	return nil
}
