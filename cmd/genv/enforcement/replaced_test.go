package enforcement

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// A controller ends when most hosts say that it was replaced, and not because some say so.
func TestReplaced(t *testing.T) {
	answered := snapshot.Host{Snapshot: &snapshot.Snapshot{}}
	down := snapshot.Host{Err: remote.Errorf(remote.Unreachable, "no route")}
	refused := snapshot.Host{Err: remote.Errorf(remote.Replaced, "the host says: refused: replaced by b")}
	for name, row := range map[string]struct {
		hosts []snapshot.Host
		ends  bool
	}{
		"the only host":               {[]snapshot.Host{refused}, true},
		"most hosts":                  {[]snapshot.Host{refused, answered, refused}, true},
		"most hosts, one is down":     {[]snapshot.Host{refused, down, refused}, true},
		"the only one that answers":   {[]snapshot.Host{down, refused, down}, false},
		"half of them":                {[]snapshot.Host{refused, answered}, false},
		"one of many, which may lie":  {[]snapshot.Host{answered, refused, answered}, false},
		"hosts that failed otherwise": {[]snapshot.Host{down, down, answered}, false},
		"no host":                     {nil, false},
		"most of a shard":             {[]snapshot.Host{refused, answered, refused}, false},
		"all of a shard that answer":  {[]snapshot.Host{refused, down, refused}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := new(loop)
			if strings.Contains(name, "shard") {
				l.setup.Division = &Division{}
			}
			err := l.replaced(&controller.Cycle{Cluster: snapshot.Cluster{Hosts: row.hosts}})
			if !row.ends {
				require.NoError(t, err)
				return
			}
			require.Equal(t, command.ExitReplaced, command.ExitCode(err))
			require.ErrorContains(t, err, "replaced by b")
			require.ErrorContains(t, err, "--take-over")
		})
	}
}

// Only that most hosts know a later epoch of the election says that etcd counts again from a lower one.
func TestRefusedByElection(t *testing.T) {
	answered := snapshot.Host{Snapshot: &snapshot.Snapshot{}}
	later := snapshot.Host{Err: remote.Errorf(remote.Replaced, "the host says: refused: replaced by b")}
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
