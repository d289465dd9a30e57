package metrics_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
)

func TestLeader(t *testing.T) {
	for name, row := range map[string]struct {
		election *election.Shown
		want     map[string]float64
	}{
		"no election": {nil, map[string]float64{}},
		"it leads": {&election.Shown{Role: election.Leading, Since: noon, Epoch: 12}, map[string]float64{
			"genv_leader": 1, "genv_leader_epoch": 12, "genv_leader_since_timestamp_seconds": float64(noon.Unix()), "genv_leader_etcd_up": 1,
		}},
		"it writes its memory": {&election.Shown{Role: election.Leading, Since: noon, Epoch: 12, Answered: noon, Memory: noon}, map[string]float64{
			"genv_leader": 1, "genv_leader_epoch": 12, "genv_leader_since_timestamp_seconds": float64(noon.Unix()), "genv_leader_etcd_up": 1,
			"genv_leader_etcd_answered_timestamp_seconds": float64(noon.Unix()), "genv_leader_memory_timestamp_seconds": float64(noon.Unix()),
		}},
		"a former leader": {&election.Shown{Role: election.Expired, Since: noon, Epoch: 12, Error: "no answer", Answered: noon, Memory: noon}, map[string]float64{
			"genv_leader": 0, "genv_leader_since_timestamp_seconds": float64(noon.Unix()), "genv_leader_etcd_up": 0,
			"genv_leader_etcd_answered_timestamp_seconds": float64(noon.Unix()),
		}},
		"a standby": {&election.Shown{Role: election.Standby, Since: noon, Leader: "ann"}, map[string]float64{
			"genv_leader": 0, "genv_leader_since_timestamp_seconds": float64(noon.Unix()), "genv_leader_etcd_up": 1,
		}},
		"without etcd": {&election.Shown{Role: election.Expired, Since: noon, Epoch: 12, Error: "no answer"}, map[string]float64{
			"genv_leader": 0, "genv_leader_since_timestamp_seconds": float64(noon.Unix()), "genv_leader_etcd_up": 0,
		}},
	} {
		all := values(t, string(metrics.Findings(&live.Fleet{Enforcing: true, Cycle: 1, Election: row.election})))
		got := map[string]float64{}
		for series, value := range all {
			if strings.HasPrefix(series, "genv_leader") {
				got[series] = value
			}
		}
		require.Equal(t, row.want, got, name)
	}
}
