package live_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// TestAllGPUs: those of a host that failed are not listed, whatever was known of them.
func TestAllGPUs(t *testing.T) {
	failure := remote.Failure{Host: "gpu-02", Class: remote.Unreachable}
	fleet := live.Fleet{
		Hosts: []live.Host{
			{Name: "gpu-02", Failure: &failure, GPUs: []gpus.GPU{{State: gpus.Unknown}}},
			{Name: "gpu-01", GPUs: []gpus.GPU{{State: gpus.Free}, {Index: 1, State: gpus.Busy}}},
			{Name: "gpu-03", Failure: &remote.Failure{Host: "gpu-03"}, GPUs: []gpus.GPU{{State: gpus.Free}}},
		},
		Failed: []remote.Failure{failure},
	}
	list := fleet.AllGPUs()
	require.Equal(t, []int{2, 1, 1}, []int{list.Total, list.Free, len(list.Hosts)})
	require.Equal(t, []remote.Failure{failure}, list.Failed)
}

func TestNoGPUs(t *testing.T) {
	document, err := json.Marshal(new(live.Fleet).AllGPUs())
	require.NoError(t, err)
	require.JSONEq(t, `{"schema":"genv.remote.gpus/1","total":0,"free":0,"hosts":[],"failed":[],"duplicates":[]}`, string(document))
}
