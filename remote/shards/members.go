package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// Cluster is what Members ask; *etcd.Client is one.
type Cluster interface {
	Lister
	Grant(ctx context.Context, ttl time.Duration) (etcd.Lease, error)
	KeepAlive(ctx context.Context, lease int64) (ttl time.Duration, err error)
	Revoke(ctx context.Context, lease int64) error
	Create(ctx context.Context, key string, value []byte, lease int64) (etcd.Creation, error)
	Put(ctx context.Context, key string, value []byte, lease int64) error
	GetAll(ctx context.Context, keys ...string) ([]*etcd.Entry, error)
}

// The times of Members.
const (
	// ttl is how long a controller that says nothing still counts as one that lives: as long as
	// it leads.
	ttl = election.TTL
	// every is how often etcd is asked.
	every = time.Second
	// within is how long etcd may take for all that is asked of it then.
	within = 4 * time.Second
)

// Errors of Members, for which the controller has to end.
var (
	// ErrSame says that another controller has the same id.
	ErrSame = errors.New("another running controller has the same host name and state folder")
	// ErrOther says that other controllers divide the hosts into another number of shards.
	ErrOther = errors.New("other controllers use another number of shards: stop them first")
)

// MembersOptions are what Members need.
type MembersOptions struct {
	Cluster Cluster
	Key     string // of all controllers, such as /genv/lab
	Self    Member // without its lists of shards
	// Registered is what etcd remembers of this controller, so that one that was killed is missed. It is
	// that of a controller with the same state folder that divides nothing, or that one would be missed.
	Registered election.Registration
	// Update gets what is seen, each second in which etcd answers. It and Failed are called by
	// Run, and must not block: the lease isn't renewed meanwhile.
	Update func(Seen)
	// Failed gets the error of each second in which etcd can't be asked, and nil when it can again.
	Failed func(error)
}

// Members keeps a controller among those that take shards, and sees the others.
type Members struct {
	MembersOptions
	lease  int64
	joined uint64
	said   string    // what etcd has of this controller
	taken  time.Time // since when another one has the key; zero for not

	mu   sync.Mutex
	runs Member // only what Set takes
}

// NewMembers returns Members that do nothing until Run.
func NewMembers(options MembersOptions) *Members {
	return &Members{MembersOptions: options}
}

// Set takes the lists of shards of a Member, which aren't changed afterwards. Others see them within some seconds.
func (m *Members) Set(runs *Member) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs = *runs
}

// Run takes part until ctx ends. Then this controller is none of the members any more. The error
// is ErrSame or ErrOther, and nil when ctx ended.
func (m *Members) Run(ctx context.Context) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	ctx, cancel := context.WithCancel(ctx)
	var registered sync.WaitGroup
	defer registered.Wait()
	defer m.leave(ctx)
	defer cancel()
	registrar := election.NewRegistrar(m.Cluster, m.Key, m.Registered, func(error) {}) // Failed gets what etcd refuses
	register := sync.OnceFunc(func() { registered.Go(func() { registrar.Run(ctx) }) })
	failed := false
	for {
		limited, cancel := context.WithTimeout(ctx, within)
		err := m.step(limited)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrSame), errors.Is(err, ErrOther):
			return err
		case err != nil || failed:
			failed = err != nil
			m.Failed(err)
		}
		if err == nil { // so this is the only controller with its id
			register()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// step does once what is done each second. A member of etcd that hangs may answer KeepAlive without
// asking the others (etcd-io/etcd#15247), so this controller counts as registered only if a read,
// for which a majority is needed, shows the key that it made.
func (m *Members) step(ctx context.Context) error {
	if err := m.join(ctx); err != nil {
		return err
	}
	entries, err := m.Cluster.List(ctx, membersPrefix(m.Key))
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(entries, func(e etcd.Entry) bool { return e.Key == m.ownKey() && e.Created == m.joined }) {
		return m.rejoin(ctx)
	}
	members := decodeAll(entries)
	for i := range members {
		if o := &members[i]; o.Count != m.Self.Count && o.Joined < m.joined {
			return fmt.Errorf("%w: %s has %d", ErrOther, o.Name, o.Count)
		}
	}
	led, err := m.led(ctx)
	if err != nil {
		return err
	}
	m.Update(Seen{Members: members, Led: led})
	return nil
}

// led are the shards that have a leader.
func (m *Members) led(ctx context.Context) (led []int, err error) {
	keys := make([]string, m.Self.Count)
	for shard := range keys {
		keys[shard] = election.LeaderKey(Key(m.Key, shard))
	}
	leaders, err := m.Cluster.GetAll(ctx, keys...)
	for shard, leader := range leaders {
		if leader != nil {
			led = append(led, shard)
		}
	}
	return led, err
}

func (m *Members) ownKey() string { return membersPrefix(m.Key) + m.Self.ID }

// join makes sure that this controller is registered, with what is Ready.
func (m *Members) join(ctx context.Context) error {
	m.mu.Lock()
	value, err := json.Marshal(document{schema, m.Self.Name, m.Self.Count, m.runs.Ready, m.runs.Left, m.runs.Blind, m.runs.Seeing})
	m.mu.Unlock()
	if err != nil {
		return err
	}
	if m.lease != 0 {
		left, err := m.Cluster.KeepAlive(ctx, m.lease)
		if err != nil {
			return err
		}
		if left == 0 {
			m.lease = 0
		}
	}
	if m.lease == 0 {
		return m.register(ctx, value)
	}
	if string(value) != m.said {
		if err := m.Cluster.Put(ctx, m.ownKey(), value, m.lease); err != nil {
			return err
		}
		m.said = string(value)
	}
	return nil
}

// register makes the key. After a kill -9 the one of the run before may be there for some seconds.
func (m *Members) register(ctx context.Context, value []byte) error {
	lease, err := m.Cluster.Grant(ctx, ttl)
	if err != nil {
		return err
	}
	made, err := m.Cluster.Create(ctx, m.ownKey(), value, lease.ID)
	if err == nil && made.Own {
		m.lease, m.joined, m.said, m.taken = lease.ID, made.Created, string(value), time.Time{}
		return nil
	}
	_ = m.Cluster.Revoke(ctx, lease.ID) // or it ends by itself
	switch {
	case err != nil:
		return err
	case m.taken.IsZero():
		m.taken = time.Now()
	case time.Since(m.taken) > 2*ttl:
		return ErrSame
	}
	return ErrTaken
}

// rejoin registers this controller again after its key was deleted while its lease lives.
func (m *Members) rejoin(ctx context.Context) error {
	m.leave(ctx)
	m.lease = 0
	return m.join(ctx)
}

// ErrTaken is why a controller doesn't take part yet.
var ErrTaken = errors.New("the key of an earlier run of this controller, which was killed, has not expired yet")

// leave takes this controller out at once.
func (m *Members) leave(ctx context.Context) {
	if m.lease == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), every)
	defer cancel()
	_ = m.Cluster.Revoke(ctx, m.lease) // or it ends by itself
}
