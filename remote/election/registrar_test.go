package election_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/testfleet/servers"
)

var one = election.Registration{
	Candidate: election.Candidate{ID: "1", Name: "genv on jump-1, process 7"}, Host: "jump-1", Version: "2.0.0", Interval: 10, Hosts: 40,
}

// A controller is registered while it runs, lost if it stops without saying so, and registered
// again when it is back; what hasn't changed isn't written again.
func TestRegistrar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newCluster()
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
		r.set(func() { r.silent = true })
		wait(time.Minute)
		_, err := election.Registered(t.Context(), r, "/genv/lab")
		require.ErrorContains(t, err, "no answer", "it isn't known that there are none")
		r.set(func() { r.silent = false })
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
		r := newCluster()
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
		r.set(func() { delete(r.others, known+"1@jump-1") })
		require.Zero(t, remembered())
		time.Sleep(time.Minute + 2*time.Second)
		require.Equal(t, 1, remembered(), "also if it has not completed a cycle since")
		cancel()
		<-ended
	})
}

func TestWhatIsNoRegistration(t *testing.T) {
	r := newCluster()
	lost, err := r.Grant(t.Context(), 7*24*time.Hour)
	require.NoError(t, err)
	r.leases[lost.ID] = time.Now().Add(time.Hour)
	for key, value := range map[string]string{
		"/k/controllers/1@jump-1": `{"schema":"genv.election.controller/1","id":"1","host":"jump-1","name":"it"}`,
		"/k/controllers/2@jump-1": `{"schema":"genv.election.controller/1","id":"1","host":"jump-1","name":"another key"}`,
		"/k/controllers/3@jump-1": `{"schema":"genv.election.controller/9","id":"3","host":"jump-1","name":"another version"}`,
		"/k/controllers/4@jump-1": `damaged`,
		"/k/controllers/1@jump-2": `{"schema":"genv.election.controller/1","id":"1","host":"jump-2","name":"a copy","pid":9}`,
		"/k/leader":               `{"schema":"genv.election.controller/1","id":"1","name":"no controller's key"}`,
	} {
		r.others[key] = etcd.KeyValue{Key: key, Value: []byte(value)}
		if strings.HasSuffix(key, "jump-2") {
			r.others[key] = etcd.KeyValue{Key: key, Value: []byte(value), Lease: lost.ID}
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
