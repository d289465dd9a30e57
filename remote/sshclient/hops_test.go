package sshclient_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// TestSpellingsOfJumpHosts: one login serves all hosts behind a jump host, however it
// is spelled, and the fleet's host that is the jump host itself.
func TestSpellingsOfJumpHosts(t *testing.T) {
	j := startJumps(t)
	spellings := []string{
		"first", "root@first", fmt.Sprintf("first:%d", j.first.port), fmt.Sprintf("ssh://root@first:%d", j.first.port),
		fmt.Sprintf("%s:%d", j.first.address, j.first.port),
	}
	config := func() string {
		var lines []string
		for i, spelling := range spellings {
			lines = append(lines, fmt.Sprintf("Host gpu-%d", i), " ProxyJump "+spelling)
			lines = append(lines, fmt.Sprintf("Host gpu-via-%d", i), fmt.Sprintf(" ProxyJump %s,second", spelling))
		}
		return j.config(t, lines...)
	}()
	runAll := func(t *testing.T, c *sshclient.Client, hosts ...remote.Host) {
		var all sync.WaitGroup
		for _, host := range hosts {
			all.Go(func() {
				_, err := c.Run(t.Context(), host, sh("true"))
				require.NoError(t, err, host.Name)
			})
		}
		all.Wait()
	}
	var behind, twice []remote.Host
	for i := range spellings {
		behind = append(behind, remote.Host{Name: fmt.Sprintf("gpu-%d", i)})
		twice = append(twice, remote.Host{Name: fmt.Sprintf("gpu-via-%d", i)})
	}
	itself := []remote.Host{{Name: "first"}, {Name: "bastion", Address: j.first.address, Port: j.first.port}}
	for name, tt := range map[string]struct {
		first, then   []remote.Host
		one, two, end int // logins on each
	}{
		"all at once":                     {behind, nil, 1, 0, 5},
		"the last of a chain":             {twice, behind, 1, 1, 10},
		"a host of the fleet before":      {itself[:1], behind, 1, 0, 5},
		"a host of the fleet after":       {behind, itself[:1], 1, 0, 5},
		"by its address, before":          {itself[1:], behind, 1, 0, 5},
		"by its address, after":           {behind, itself[1:], 1, 0, 5},
		"at the same time":                {append(behind[:5:5], itself[0]), nil, 1, 0, 5},
		"two hosts of the fleet are two":  {itself, behind, 2, 0, 5},
		"two of them, after":              {behind, itself, 2, 0, 5},
		"two, the first spelled the same": {behind[:1], itself, 2, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			before := []int{logins(t, j.first), logins(t, j.second), logins(t, j.last)}
			c := newClient(t, sshclient.Options{ConfigFile: config})
			runAll(t, c, tt.first...)
			for _, host := range tt.then[:min(1, len(tt.then))] {
				runAll(t, c, host) // before the others, so that it is the one that shares
			}
			runAll(t, c, tt.then...)
			require.Equal(t, []int{before[0] + tt.one, before[1] + tt.two, before[2] + tt.end}, []int{logins(t, j.first), logins(t, j.second), logins(t, j.last)})
		})
	}
	t.Run("other settings are another login", func(t *testing.T) {
		before := logins(t, j.first)
		c := newClient(t, sshclient.Options{ConfigFile: j.config(t, "Host gpu-0", " ProxyJump first", "Host gpu-1", " ProxyJump other", "Host other", " ConnectTimeout 9", " HostName "+j.first.address, fmt.Sprintf(" Port %d", j.first.port))})
		runAll(t, c, behind[:2]...)
		require.Equal(t, before+2, logins(t, j.first), "the settings differ")
	})
	t.Run("a host that leaves the fleet", func(t *testing.T) {
		c := newClient(t, sshclient.Options{ConfigFile: config})
		runAll(t, c, behind[:1]...)
		runAll(t, c, itself[:1]...)
		c.Forget(itself[0])
		runAll(t, c, behind[:2]...)
		runAll(t, c, itself[1])
		c.Forget(behind[0])
		runAll(t, c, itself...)
	})
}
