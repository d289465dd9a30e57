package election

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Registration is what a controller says about itself to the others, while it runs.
type Registration struct {
	Candidate
	Host    string    `json:"host"` // on which it runs, by that host's own name
	PID     int       `json:"pid"`
	Version string    `json:"version"` // of genv
	Since   time.Time `json:"since"`   // since when it runs; this and Cycled are by its own clock
	Cycled  time.Time `json:"cycled,omitzero"`
	// Interval is the time from cycle to cycle, in seconds.
	Interval float64 `json:"interval,omitempty"`
	// Hosts is how many hosts it has. HostsDigest and Policy are the same for the same hosts and
	// for equal policies, and empty from an older genv.
	Hosts       int    `json:"hosts,omitempty"`
	HostsDigest string `json:"hosts_digest,omitempty"`
	Policy      string `json:"policy,omitempty"`
	// Answered is how many of the Hosts answered in the last cycle; nil before one, and from an
	// older genv.
	Answered *int `json:"answered,omitempty"`
	// Lost says that it ended without saying so, or can't reach etcd: it is not in the value.
	Lost bool `json:"-"`
}

const registrationSchema = "genv.election.controller/1"

// storedRegistration is the value of a key.
type storedRegistration struct {
	Schema string `json:"schema"`
	Registration
}

// registeredPrefix begins the keys of controllers that run, and knownPrefix those of
// controllers that ran: these remain for keepKnown unless a controller ends in order.
func registeredPrefix(key string) string { return key + "/controllers/" }
func knownPrefix(key string) string      { return key + "/known/" }

// name is that of the keys of a controller: a state folder may have been copied to another host.
func (r *Registration) name() string { return r.ID + "@" + r.Host }

// Registry is what Registered asks; *etcd.Client is one.
type Registry interface {
	List(ctx context.Context, prefix string) ([]etcd.Entry, error)
}

// Registered are the controllers of an election that run, and those that are Lost, by their
// names. What can't be read, as of another version, is left out.
func Registered(ctx context.Context, r Registry, key string) ([]Registration, error) {
	known, err := read(ctx, r, knownPrefix(key))
	if err != nil {
		return nil, err
	}
	list, err := read(ctx, r, registeredPrefix(key))
	if err != nil {
		return nil, err
	}
	for _, k := range known {
		if !slices.ContainsFunc(list, func(l Registration) bool { return l.name() == k.name() }) {
			k.Lost = true
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b Registration) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return list, nil
}

func read(ctx context.Context, r Registry, prefix string) ([]Registration, error) {
	entries, err := r.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var list []Registration
	for _, e := range entries {
		var s storedRegistration
		if json.Unmarshal(e.Value, &s) == nil && s.Schema == registrationSchema && s.name() == strings.TrimPrefix(e.Key, prefix) {
			list = append(list, s.Registration)
		}
	}
	return list, nil
}

// Candidate is a controller that takes part in an election, as the others see it.
type Candidate struct {
	ID   string `json:"id"`   // the same after a restart
	Name string `json:"name"` // for people
}

// Leader is the controller that leads, as its key says.
type Leader struct {
	Candidate
	Since time.Time `json:"since"` // by its own clock
}

const schema = "genv.election/1"

// storedLeader is the value of the key.
type storedLeader struct {
	Schema string `json:"schema"`
	Leader
}

func encode(l Leader) ([]byte, error) { return json.Marshal(storedLeader{schema, l}) }

// LeaderOf is what the key of the leader says; nil if no controller leads. The
// epoch is that of the leader, and the cluster is etcd's.
func LeaderOf(ctx context.Context, c *etcd.Client, key string) (leader *Leader, epoch, cluster uint64, err error) {
	entry, cluster, err := c.Look(ctx, LeaderKey(key))
	if err != nil || entry == nil {
		return nil, 0, cluster, err
	}
	leads := decode(entry.Value)
	return &leads, entry.Created, cluster, nil
}

// decode reads the value of a key. Whatever is there, somebody leads: the name is for people.
func decode(value []byte) Leader {
	var c storedLeader
	if err := json.Unmarshal(value, &c); err != nil || c.Schema != schema {
		return Leader{Candidate: Candidate{Name: "a controller of another version"}}
	}
	return c.Leader
}

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
	registered, known leasedKey

	mu   sync.Mutex
	self Registration
}

// NewRegistrar returns a Registrar for an election with this key. refused is called once, by Run, when
// etcd refuses a registration: the user may not be allowed to write these keys.
func NewRegistrar(cluster RegistrarCluster, key string, self Registration, refused func(error)) *Registrar {
	return &Registrar{
		cluster: cluster, self: self, refused: refused,
		registered: leasedKey{key: registeredPrefix(key) + self.name(), ttl: RegisteredFor, every: registerEvery},
		known:      leasedKey{key: knownPrefix(key) + self.name(), ttl: keepKnown, every: renewKnownEvery, anyway: true},
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
	for _, k := range []*leasedKey{&r.registered, &r.known} {
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

// leasedKey is a key that depends on a lease.
type leasedKey struct {
	key        string
	ttl, every time.Duration
	anyway     bool  // write it also if it hasn't changed: an operator may have deleted it
	lease      int64 // 0 for none
	written    []byte
	renewed    time.Time
}

// keep renews the lease, or makes one, and writes the key if it has changed or is written anyway.
func (k *leasedKey) keep(ctx context.Context, cluster RegistrarCluster, self Registration) error {
	now := time.Now()
	if k.lease != 0 && now.Sub(k.renewed) < k.every-registerEvery/2 {
		return nil
	}
	value, err := json.Marshal(storedRegistration{registrationSchema, self})
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
