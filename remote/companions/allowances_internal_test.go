package companions

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// TestTellWaits: a host is told what its waits get, and nothing of other hosts.
func TestTellWaits(t *testing.T) {
	all := []enforce.ForWait{
		{Host: "a", ID: "w1", GPUs: []snapshot.DeviceIndex{2, 3}}, {Host: "a", ID: "w2", Possible: 1},
		{Host: "a", ID: "w3"}, {Host: "b", ID: "w4", GPUs: []snapshot.DeviceIndex{0}},
	}
	var told service.Allowance
	tellWaits(&told, all, "a")
	require.Equal(t, map[string][]snapshot.DeviceIndex{"w1": {2, 3}}, told.Offers)
	require.Equal(t, map[string]int{"w2": 1, "w3": 0}, told.Possible)
}
