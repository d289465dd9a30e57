// Package election elects which of several controllers may act, by a key in etcd.
//
//	elector := election.New(election.Options{Cluster: client, Key: "/genv/lab", Self: self, Clock: clock,
//		Now: time.Now})
//	err := elector.Run(ctx, election.Roles{StandBy: watch, Lead: enforce, Changed: log})
//
// The leader made the key KEY/leader, which depends on its lease. Its epoch is the revision of the cluster that made the
// key, so each later leader has a higher one. A leader that can't renew its lease leads for TTL after it sent the last
// renewal that a majority of etcd's members confirmed. So it stops before another controller leads. Hosts refuse a
// leader that was replaced: see remote/agent/fence.
//
// Each controller, even a standby, is registered while it runs: see Registrar and Registered.
package election

import (
	"context"
	"sync"
	"time"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election/etcd"
)

// LeaseStore keeps leases and keys; *etcd.Gateway is one.
type LeaseStore interface {
	Grant(ctx context.Context, ttl time.Duration) (lease int64, granted time.Duration, err error)
	// Renew renews a lease, then reads a key. ttl is 0 if the lease has ended. It fails without etcd's majority.
	Renew(ctx context.Context, lease int64, key string) (ttl time.Duration, entry *etcd.KeyValue, err error)
	Revoke(ctx context.Context, lease int64) error
	Create(ctx context.Context, key string, value []byte, lease int64) (etcd.Creation, error)
	// Update writes a key that was created in a revision and depends on a lease.
	Update(ctx context.Context, key string, created uint64, value []byte, lease int64) error
	Get(ctx context.Context, key string) (*etcd.KeyValue, error)
}

const (
	TTL          = 5 * time.Second        // of a leader's lease
	renewEvery   = time.Second            // how often a leader renews its lease
	askEvery     = 100 * time.Millisecond // how often a standby asks for the key, and a leader tries again
	resignWithin = 2 * time.Second        // for etcd to answer at the end: enough to ask a second member
)

// Options configure an Elector.
type Options struct {
	Cluster LeaseStore
	Key     string // of the election, such as /genv/lab; all keys in etcd are below it
	Self    Candidate
	// Clock never goes back, and continues while the machine sleeps; Now is for people.
	Clock func() time.Duration
	Now   func() time.Time
	// Works, if set, reports whether this controller works. One that hangs neither campaigns nor renews its lease.
	Works func() bool
}

// Status is the state of an election.
type Status struct {
	Role  Role
	Since time.Time // of the role
	// Epoch and the id of etcd's cluster are those in which it leads, or led if it is Expired.
	Epoch, Cluster uint64

	Leader      *Leader   // another controller that leads; nil if none is known
	OtherPolicy bool      // the Leader has another policy than this controller
	Err         error     // of the last question to etcd
	Answered    time.Time // when etcd answered last: to a leader, that it still leads
	Followed    time.Time // when another controller was last seen to lead; zero for never
}

// Elector takes part in an election. It is safe for concurrent use, but Run or Campaign is called only once.
type Elector struct {
	Options
	changed chan struct{}

	mu     sync.Mutex
	state  Leadership
	status Status
	policy string // of this controller; empty if unknown
	stated string // the policy in its key
}

// New returns an Elector that is a standby until Run.
func New(options Options) *Elector {
	return &Elector{
		Options: options, changed: make(chan struct{}, 1),
		status: Status{Role: Standby, Since: options.Now()},
	}
}

// Leads reports whether this controller may act now.
func (e *Elector) Leads() bool { return e.Status().Role == Leading }

// LeadsWith reports whether this controller may act now in an epoch. It is called right before each action.
func (e *Elector) LeadsWith(epoch uint64) bool {
	s := e.Status()
	return s.Role == Leading && s.Epoch == epoch
}

// Status returns the present state.
func (e *Elector) Status() Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.status
	s.Role = e.state.Role(e.Clock())
	return s
}

// SetPolicy sets the digest of this controller's policy. Other controllers report if theirs differs.
func (e *Elector) SetPolicy(digest string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.policy = digest
}

// Changed gets a value when the role, the epoch, the leader, or whether etcd answers, may have changed.
func (e *Elector) Changed() <-chan struct{} { return e.changed }

// Campaign campaigns and leads until ctx ends. Then it resigns, so that another controller can lead at once.
func (e *Elector) Campaign(ctx context.Context) {
	for ctx.Err() == nil {
		remote.Sleep(ctx, e.step(ctx))
	}
	e.resign(ctx)
}

func (e *Elector) step(ctx context.Context) time.Duration {
	e.mu.Lock()
	state := e.state
	e.mu.Unlock()
	switch now := e.Clock(); state.Role(now) {
	case Leading:
		if !e.works() {
			return askEvery
		}
		return e.renew(ctx, state, state.Left(now))
	case Expired:
		return e.retire(ctx, state)
	case Standby:
	}
	return e.campaign(ctx)
}

func (e *Elector) works() bool { return e.Works == nil || e.Works() }

func (e *Elector) campaign(ctx context.Context) time.Duration {
	leader, err := e.Cluster.Get(ctx, LeaderKey(e.Key))
	if err == nil && leader == nil && e.works() {
		if leader, err = e.stand(ctx); err == nil && leader == nil {
			return 0 // it leads
		}
	}
	e.learn(leader, err)
	return askEvery
}

func (e *Elector) stand(ctx context.Context) (other *etcd.KeyValue, err error) {
	sent := e.Clock()
	lease, ttl, err := e.Cluster.Grant(ctx, TTL)
	if err != nil {
		return nil, err
	}
	since := e.Now()
	value, policy, err := e.value(since)
	if err != nil {
		return nil, err
	}
	made, err := e.Cluster.Create(ctx, LeaderKey(e.Key), value, lease)
	if err != nil || !made.Own {
		e.revoke(ctx, lease)
		return &made.KeyValue, err
	}
	e.set(func(s *Leadership, status *Status) {
		*s = s.Won(lease, made.Created, sent, ttl)
		*status = Status{
			Since: since, Epoch: made.Created, Cluster: made.Cluster, Answered: since, Followed: status.Followed,
		}
		e.stated = policy
	})
	return nil, nil //nolint:nilnil // no other controller leads
}

func (e *Elector) value(since time.Time) (value []byte, policy string, err error) {
	e.mu.Lock()
	policy = e.policy
	e.mu.Unlock()
	value, err = encode(Leader{e.Self, since.Truncate(time.Second).UTC(), policy})
	return value, policy, err
}

// statePolicy writes the key again if the policy has changed. After an error the next renewal tries it.
func (e *Elector) statePolicy(ctx context.Context, state Leadership) {
	value, policy, err := e.value(e.Status().Since)
	if err != nil || policy == e.stated ||
		e.Cluster.Update(ctx, LeaderKey(e.Key), state.epoch, value, state.lease) != nil {
		return
	}
	e.set(func(*Leadership, *Status) { e.stated = policy })
}

func (e *Elector) learn(entry *etcd.KeyValue, err error) {
	e.set(func(_ *Leadership, status *Status) {
		if status.Err = err; err != nil {
			return
		}
		status.Leader, status.OtherPolicy, status.Answered = nil, false, e.Now()
		if entry != nil {
			leader := decode(entry.Value)
			status.Leader, status.Followed = &leader, status.Answered
			status.OtherPolicy = e.policy != "" && leader.Policy != "" && e.policy != leader.Policy
		}
	})
}

func (e *Elector) renew(ctx context.Context, state Leadership, left time.Duration) time.Duration {
	limited, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	sent := e.Clock()
	ttl, entry, err := e.Cluster.Renew(limited, state.lease, LeaderKey(e.Key))
	gone := err == nil && (ttl == 0 || entry == nil || entry.Created != state.epoch) // someone may delete the key
	now := e.Clock()
	e.set(func(s *Leadership, status *Status) {
		switch status.Err = err; {
		case gone:
			*s = s.Lost()
		case err == nil:
			*s, status.Answered = s.Renewed(state.lease, sent, ttl, now), e.Now()
		}
	})
	switch {
	case gone:
		return 0
	case err != nil:
		return max(0, min(askEvery, left-(now-sent)))
	}
	e.statePolicy(limited, state)
	return max(0, renewEvery-(e.Clock()-sent))
}

// retire revokes an expired lease, which etcd may still keep, to campaign for a new epoch.
func (e *Elector) retire(ctx context.Context, state Leadership) time.Duration {
	e.set(func(*Leadership, *Status) {}) // sets the role
	err := e.Cluster.Revoke(ctx, state.lease)
	e.set(func(s *Leadership, status *Status) {
		if status.Err = err; err == nil {
			*s = s.Lost()
		}
	})
	if err != nil {
		return askEvery
	}
	return 0
}

// resign ends the lease, so that the next leader needn't wait for its end.
func (e *Elector) resign(ctx context.Context) {
	var lease int64
	e.set(func(s *Leadership, _ *Status) {
		lease = s.lease
		*s = s.Lost()
	})
	if lease != 0 {
		e.revoke(ctx, lease)
	}
}

// revoke ends a lease, even after the end of ctx. If etcd doesn't answer, the lease ends by itself.
func (e *Elector) revoke(ctx context.Context, lease int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignWithin)
	defer cancel()
	_ = e.Cluster.Revoke(ctx, lease)
}

func (e *Elector) set(change func(*Leadership, *Status)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	before := e.status
	change(&e.state, &e.status)
	if e.status.Role = e.state.Role(e.Clock()); e.status.Role != before.Role {
		e.status.Since = e.Now()
		if e.status.Role == Standby {
			e.status.Epoch = 0
		}
	}
	if differs(&before, &e.status) {
		select {
		case e.changed <- struct{}{}:
		default: // it has a value already
		}
	}
}

func differs(a, b *Status) bool {
	if a.Role != b.Role || a.Epoch != b.Epoch || (a.Err == nil) != (b.Err == nil) ||
		(a.Leader == nil) != (b.Leader == nil) || a.OtherPolicy != b.OtherPolicy {
		return true
	}
	return a.Leader != nil && *a.Leader != *b.Leader
}
