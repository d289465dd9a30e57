package enforcement

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/snapshot"
)

// Only that most hosts know a later epoch of the election says that etcd counts again from a lower one.
func TestRefusedByElection(t *testing.T) {
	answered := snapshot.Host{Snapshot: &snapshot.Snapshot{}}
	later := snapshot.Host{Err: remote.Errorf(remote.Replaced, "the host says: refused: replaced by b: %w", agent.ErrLater)}
	foreign := snapshot.Host{Err: remote.Errorf(remote.Replaced, "the host says: refused: b acts on this host")}
	for name, row := range map[string]struct {
		hosts []snapshot.Host
		want  bool
	}{
		"most hosts":         {[]snapshot.Host{later, answered, later}, true},
		"half of them":       {[]snapshot.Host{later, answered}, false},
		"another controller": {[]snapshot.Host{foreign, foreign}, false},
		"no host":            {nil, false},
	} {
		require.Equal(t, row.want, refusedByElection(&controller.Cycle{Cluster: snapshot.Cluster{Hosts: row.hosts}}), name)
	}
}

// Hosts that know a later epoch mean that etcd was set up again only if this controller is still known to lead:
// it may have been stopped while another one was elected, or a member of etcd was.
func TestALaterEpochOnHosts(t *testing.T) {
	answered := snapshot.Host{Snapshot: &snapshot.Snapshot{}}
	later := snapshot.Host{Err: remote.Errorf(remote.Replaced, "the host says: refused: replaced by b: %w", agent.ErrLater)}
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for name, row := range map[string]struct {
		hosts  []snapshot.Host
		cycles int // one each second
		before func(t *testing.T, s *store)
		warned int
	}{
		"etcd was set up again":                 {[]snapshot.Host{later, answered, later}, 20, nil, 1},
		"it may have been elected since":        {[]snapshot.Host{later, later}, 5, nil, 0},
		"a few hosts say so":                    {[]snapshot.Host{later, answered}, 20, nil, 0},
		"it was stopped, and another one leads": {[]snapshot.Host{later}, 20, func(_ *testing.T, s *store) { s.elect("b") }, 0},
		"etcd doesn't answer any more":          {[]snapshot.Host{later}, 4, func(_ *testing.T, s *store) { s.fail(context.DeadlineExceeded) }, 0},
		"etcd ended its lease, and it was elected again": {[]snapshot.Host{later}, 5, func(t *testing.T, s *store) {
			require.NoError(t, s.Revoke(t.Context(), 1))
		}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{entries: map[string]etcd.KeyValue{}}
			l := leading(&loop{program: &command.Program{Now: time.Now}, part: electedPart(t, s)})
			var log bytes.Buffer
			l.log = zerolog.New(&log)
			time.Sleep(time.Minute + seconds(1)/2)
			if row.before != nil {
				row.before(t, s)
			}
			for range row.cycles {
				require.NoError(t, l.replaced(&controller.Cycle{Cluster: snapshot.Cluster{Hosts: row.hosts}}))
				time.Sleep(time.Second)
			}
			require.Equal(t, row.warned, strings.Count(log.String(), "etcd was recreated"), name)
		})
	}
}
