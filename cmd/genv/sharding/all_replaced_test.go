package sharding

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/shards"
	"github.com/seed-3119e985/genv/remote/testfleet/etcdcluster"
)

// A controller ends when other controllers act on the hosts of all shards; before, it goes on with
// the others.
func TestAControllerOfWhichAllShardsWereReplaced(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	client := etcd.New(etcd.Config{Endpoints: etcdcluster.Start(t, 1).Endpoints()})
	defer client.Close()
	var hosts []remote.Host
	for i := range 40 {
		hosts = append(hosts, remote.Host{Name: fmt.Sprintf("gpu-%02d", i)})
	}
	begun := time.Now()
	err := Run(t.Context(), Options{
		Config: Config{Count: 3}, Program: "sh", Args: []string{"-c", "exit 7"}, Log: zerolog.Nop(), Out: io.Discard,
		Clock: func() time.Duration { return time.Since(begun) }, Cluster: client, Key: "/genv/lab", ID: "a", Name: "a",
		Hosts: func() ([]remote.Host, error) { return hosts, nil },
	})
	require.Equal(t, command.ExitReplaced, command.ExitCode(err))
}

// A shard of which most hosts refused this controller is known to be left alone: nothing else in etcd
// says that it has hosts.
func TestAShardThatIsLeftAlone(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	client := etcd.New(etcd.Config{Endpoints: etcdcluster.Start(t, 1).Endpoints()})
	defer client.Close()
	var hosts []remote.Host
	for i := range 40 {
		hosts = append(hosts, remote.Host{Name: fmt.Sprintf("gpu-%02d", i)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended, begun := make(chan error, 1), time.Now()
	go func() {
		ended <- Run(ctx, Options{
			Config: Config{Count: 2}, Program: "sh", Args: []string{"-c", `test "$GENV_SHARD" = 0 || exit 7; exec sleep 600`}, Log: zerolog.Nop(), Out: io.Discard,
			Clock: func() time.Duration { return time.Since(begun) }, Cluster: client, Key: "/genv/lab", ID: "a", Name: "a",
			Hosts: func() ([]remote.Host, error) { return hosts, nil },
		})
	}()
	require.Eventually(t, func() bool {
		members, err := shards.Present(t.Context(), client, "/genv/lab")
		return err == nil && len(members) == 1 && slices.Equal(members[0].Left, []int{1})
	}, time.Minute, 50*time.Millisecond)
	cancel()
	require.Equal(t, command.ExitReplaced, command.ExitCode(<-ended))
}

func TestAllReplaced(t *testing.T) {
	for _, c := range []struct {
		name           string
		with, replaced map[int]bool
		all            bool
	}{
		{"none", map[int]bool{0: true, 1: true}, nil, false},
		{"one of two", map[int]bool{0: true, 1: true}, map[int]bool{0: true}, false},
		{"both", map[int]bool{0: true, 1: true}, map[int]bool{0: true, 1: true}, true},
		{"both that have hosts", map[int]bool{0: true, 2: true}, map[int]bool{0: true, 2: true}, true},
		{"one, and its hosts left", map[int]bool{1: true}, map[int]bool{0: true}, false},
		{"no hosts", nil, nil, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.all, (&run{with: c.with, replaced: c.replaced}).allReplaced())
		})
	}
}
