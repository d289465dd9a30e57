package enforcement

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/snapshot"
)

// What can't take hosts over says so, instead of leaving them to another controller.
func TestWhatTakesNoHostOver(t *testing.T) {
	for name, row := range map[string]struct {
		config Config
		why    string
	}{
		"a single cycle":             {Config{TakeOver: true}, "a single cycle"},
		"a loop of a single cycle":   {Config{TakeOver: true, Interval: time.Second, Cycles: 1}, "a single cycle"},
		"a loop without a folder":    {Config{TakeOver: true, Interval: time.Second}, "needs a state folder"},
		"a single cycle without it":  {Config{}, ""},
		"a loop without it":          {Config{Interval: time.Second}, ""},
		"a dry run in a loop, as is": {Config{Interval: time.Second, DryRun: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&keeper{}).claim(&Setup{Config: row.config}, &identity{ID: "a"})
			if row.why == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.why)
			require.Equal(t, command.ExitFailed, command.ExitCode(err))
		})
	}
}

// The digest of hosts is that of their names, in any order.
func TestDigestOfHosts(t *testing.T) {
	list := func(names ...string) (hosts []remote.Host) {
		for _, n := range names {
			hosts = append(hosts, remote.Host{Name: n})
		}
		return hosts
	}
	require.Equal(t, digestOf(list("a", "b")), digestOf(list("b", "a")))
	for _, other := range [][]remote.Host{nil, list("a"), list("a", "c"), list("a", "b", "b"), list("ab")} {
		require.NotEqual(t, digestOf(list("a", "b")), digestOf(other))
	}
}

// A registration says how many hosts answered: also that none did.
func TestRegistrationOfACycle(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 7, time.UTC)
	cut := snapshot.Host{Name: "gpu-02", Err: errors.New("no answer")}
	for name, row := range map[string]struct {
		hosts    []snapshot.Host
		answered int
	}{
		"one of two": {[]snapshot.Host{{Name: "gpu-01", Snapshot: &snapshot.Snapshot{}}, cut}, 1},
		"none":       {[]snapshot.Host{cut, cut}, 0},
	} {
		var r election.Registration
		cycled(&r, &controller.Cycle{Cluster: snapshot.Cluster{Hosts: row.hosts}}, now)
		require.Equal(t, election.Registration{Cycled: now.Truncate(time.Second), Hosts: 2, Answered: &row.answered}, r, name)
	}
}
