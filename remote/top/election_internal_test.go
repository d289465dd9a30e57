package top

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
)

func TestWhoLeads(t *testing.T) {
	m, _ := acting(t)
	for name, row := range map[string]struct {
		election *election.Shown
		want     string
		isnt     string
	}{
		"no election": {nil, "enforcing", "standby"},
		"it leads":    {&election.Shown{Role: election.Leading, Since: noon, Epoch: 12}, "this controller leads since 2026-11-20T12:00:00Z (epoch 12)", "standby"},
		"a standby":   {&election.Shown{Role: election.Standby, Since: noon, Leader: "ann on jump-1", LeaderSince: noon}, `standby; "ann on jump-1" leads since 2026-11-20T12:00:00Z`, "enforcing"},
		"a leader that gets no answer from etcd": {
			&election.Shown{Role: election.Leading, Since: noon, Epoch: 12, Error: "no answer"},
			"etcd doesn't answer: this controller acts until its lease expires", "standby",
		},
		"one that may have been replaced": {&election.Shown{Role: election.Expired, Since: noon, Epoch: 12, Error: "no answer"}, "this one only watches until etcd answers", "enforcing"},
	} {
		f := sample()
		f.Election = row.election
		m.update(f)
		screen := strings.Join(m.screen(), "\n")
		require.Contains(t, screen, row.want, name)
		require.NotContains(t, m.activity(), row.isnt, name)
	}
}
