package election_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
)

// registry is an etcd in memory, of which the leases end by the test's clock.
type registry struct {
	mu     sync.Mutex // over all of these
	ends   map[int64]time.Time
	ttls   map[int64]time.Duration
	keys   map[string]etcd.KeyValue
	puts   int
	silent bool
	lease  int64
}

func (r *registry) answer() error {
	if r.silent {
		return errors.New("no answer")
	}
	for id, end := range r.ends {
		if time.Now().After(end) {
			_ = r.end(id)
		}
	}
	return nil
}

func (r *registry) end(lease int64) error {
	delete(r.ends, lease)
	for key, e := range r.keys {
		if e.Lease == lease {
			delete(r.keys, key)
		}
	}
	return nil
}

func (r *registry) Grant(_ context.Context, ttl time.Duration) (etcd.Lease, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.answer(); err != nil {
		return etcd.Lease{}, err
	}
	r.lease++
	r.ends[r.lease], r.ttls[r.lease] = time.Now().Add(ttl), ttl
	return etcd.Lease{ID: r.lease, TTL: ttl}, nil
}

func (r *registry) KeepAlive(_ context.Context, lease int64) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.answer(); err != nil {
		return 0, err
	}
	if _, ok := r.ends[lease]; !ok {
		return 0, nil
	}
	r.ends[lease] = time.Now().Add(r.ttls[lease])
	return r.ttls[lease], nil
}

func (r *registry) TimeToLive(_ context.Context, lease int64) (left, granted time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.answer(); err != nil {
		return 0, 0, err
	}
	return time.Until(r.ends[lease]), r.ttls[lease], nil
}

func (r *registry) Revoke(_ context.Context, lease int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.end(lease)
}

func (r *registry) isSilent(silent bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.silent = silent
}

func (r *registry) Put(_ context.Context, key string, value []byte, lease int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.answer(); err != nil {
		return err
	}
	r.puts++
	r.keys[key] = etcd.KeyValue{Key: key, Value: value, Lease: lease}
	return nil
}

func (r *registry) List(_ context.Context, prefix string) (list []etcd.KeyValue, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	err = r.answer()
	for key, e := range r.keys {
		if strings.HasPrefix(key, prefix) {
			list = append(list, e)
		}
	}
	return list, err
}

func newRegistry() *registry {
	return &registry{ends: map[int64]time.Time{}, ttls: map[int64]time.Duration{}, keys: map[string]etcd.KeyValue{}}
}

var one = election.Registration{
	Candidate: election.Candidate{ID: "1", Name: "genv on jump-1, process 7"}, Host: "jump-1", Version: "2.0.0", Interval: 10, Hosts: 40,
}

// A controller is registered while it runs, lost if it stops without saying so, and registered
// again when it is back; what hasn't changed isn't written again.
func TestRegistrar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		registrar := election.NewRegistrar(r, "/genv/lab", one, func(err error) { require.NoError(t, err) })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { registrar.Run(ctx); close(ended) }()
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		shown := func() []election.Registration {
			list, err := election.Registered(t.Context(), r, "/genv/lab")
			require.NoError(t, err)
			return list
		}
		wait(time.Minute - time.Second)
		require.Equal(t, []election.Registration{one}, shown())
		require.Equal(t, 1, r.puts, "nothing has changed")

		cycled := time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)
		registrar.Set(func(r *election.Registration) { r.Cycled = cycled })
		wait(3 * time.Second)
		require.Equal(t, cycled, shown()[0].Cycled)

		wait(time.Minute)
		r.isSilent(true)
		wait(time.Minute)
		_, err := election.Registered(t.Context(), r, "/genv/lab")
		require.ErrorContains(t, err, "no answer", "it isn't known that there are none")
		r.isSilent(false)
		lost := one
		lost.Cycled, lost.Lost = cycled, true
		require.Equal(t, []election.Registration{lost}, shown())
		wait(3 * time.Second)
		require.False(t, shown()[0].Lost, "it is back")

		cancel()
		<-ended
		require.Empty(t, shown(), "it ended in order")
	})
}

// An operator may have etcd forget all controllers, to forget those that are lost.
func TestARunningControllerIsRememberedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistry()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			election.NewRegistrar(r, "/genv/lab", one, func(err error) { require.NoError(t, err) }).Run(ctx)
			close(ended)
		}()
		time.Sleep(time.Second)
		const known = "/genv/lab/controllers/"
		remembered := func() int {
			list, err := r.List(t.Context(), known)
			require.NoError(t, err)
			return len(list)
		}
		require.Equal(t, 1, remembered())
		r.mu.Lock()
		delete(r.keys, known+"1@jump-1")
		r.mu.Unlock()
		require.Zero(t, remembered())
		time.Sleep(time.Minute + 2*time.Second)
		require.Equal(t, 1, remembered(), "also if it has not completed a cycle since")
		cancel()
		<-ended
	})
}

func TestWhatIsNoRegistration(t *testing.T) {
	r := newRegistry()
	lost, err := r.Grant(t.Context(), 7*24*time.Hour)
	require.NoError(t, err)
	r.ends[lost.ID] = time.Now().Add(time.Hour)
	for key, value := range map[string]string{
		"/k/controllers/1@jump-1": `{"schema":"genv.election.controller/1","id":"1","host":"jump-1","name":"it"}`,
		"/k/controllers/2@jump-1": `{"schema":"genv.election.controller/1","id":"1","host":"jump-1","name":"another key"}`,
		"/k/controllers/3@jump-1": `{"schema":"genv.election.controller/9","id":"3","host":"jump-1","name":"another version"}`,
		"/k/controllers/4@jump-1": `damaged`,
		"/k/controllers/1@jump-2": `{"schema":"genv.election.controller/1","id":"1","host":"jump-2","name":"a copy","pid":9}`,
		"/k/leader":               `{"schema":"genv.election.controller/1","id":"1","name":"no controller's key"}`,
	} {
		r.keys[key] = etcd.KeyValue{Key: key, Value: []byte(value)}
		if strings.HasSuffix(key, "jump-2") {
			r.keys[key] = etcd.KeyValue{Key: key, Value: []byte(value), Lease: lost.ID}
		}
	}
	list, err := election.Registered(t.Context(), r, "/k")
	require.NoError(t, err)
	require.Equal(t, []election.Registration{
		{Candidate: election.Candidate{ID: "1", Name: "a copy"}, Host: "jump-2", Lost: true},
		{Candidate: election.Candidate{ID: "1", Name: "it"}, Host: "jump-1"},
	}, list)
}

// Over a real etcd with a user who may use the keys of the election only: a controller
// is registered again after its lease has ended, and no longer after it ended in order.
func TestRegistrarOverEtcd(t *testing.T) {
	t.Parallel()
	c := servers.StartEtcd(t, 1)
	c.AddUser("genv", "secret", "/genv/")
	config := etcd.Config{Endpoints: c.Endpoints(), User: "genv", Password: "secret"}
	client := etcd.New(config)
	t.Cleanup(client.Close)
	refused := make(chan error, 1)
	registrar := election.NewRegistrar(client, "/genv/lab", one, func(err error) { refused <- err })
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { registrar.Run(ctx); close(ended) }()
	become := func(want ...election.Registration) {
		t.Helper()
		require.Eventually(t, func() bool {
			list, err := election.Registered(t.Context(), client, "/genv/lab")
			return err == nil && len(list) == len(want) && (len(want) == 0 || list[0] == want[0])
		}, time.Minute, 20*time.Millisecond)
	}
	become(one)
	entries, err := client.List(t.Context(), "/genv/lab/controllers/")
	require.NoError(t, err)
	require.NoError(t, client.Revoke(t.Context(), entries[0].Lease)) // as if it had been cut off for long
	require.Eventually(t, func() bool {
		again, err := client.List(t.Context(), "/genv/lab/controllers/")
		return err == nil && len(again) == 1 && again[0].Lease != entries[0].Lease
	}, time.Minute, 20*time.Millisecond)
	become(one)
	cancel()
	<-ended
	become()
	require.Empty(t, refused)
}

// A user who may not write the keys of controllers: that is said once, and why.
func TestARegistrationThatIsRefused(t *testing.T) {
	t.Parallel()
	c := servers.StartEtcd(t, 1)
	c.AddUser("genv", "secret", "/genv/lab/leader")
	client := etcd.New(etcd.Config{Endpoints: c.Endpoints(), User: "genv", Password: "secret"})
	t.Cleanup(client.Close)
	refused := make(chan error, 10)
	registrar := election.NewRegistrar(client, "/genv/lab", one, func(err error) { refused <- err })
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // more than two tries
	defer cancel()
	registrar.Run(ctx)
	require.Len(t, refused, 1)
	require.ErrorContains(t, <-refused, "permission denied (the role of the user needs")
}
