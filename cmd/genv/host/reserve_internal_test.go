package host

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// Where it is unknown who uses a GPU, nobody is said to hold nothing.
func TestHolders(t *testing.T) {
	alice := snapshot.UID(4001)
	used := []snapshot.DeviceUsage{{Index: 0}}
	for name, tt := range map[string]struct {
		s    snapshot.Snapshot
		want map[snapshot.UID]bool // nil for unknown
	}{
		"nobody":     {snapshot.Snapshot{Devices: []snapshot.Device{{}}}, map[snapshot.UID]bool{}},
		"a process":  {snapshot.Snapshot{Processes: []snapshot.Process{{UID: &alice, Usage: used}}}, map[snapshot.UID]bool{alice: true}},
		"no GPU":     {snapshot.Snapshot{Processes: []snapshot.Process{{}}}, map[snapshot.UID]bool{}},
		"more":       {snapshot.Snapshot{More: []snapshot.More{{UID: &alice}}}, map[snapshot.UID]bool{alice: true}},
		"whose":      {snapshot.Snapshot{Processes: []snapshot.Process{{Usage: used}}}, nil},
		"whose more": {snapshot.Snapshot{More: []snapshot.More{{}}}, nil},
		"a GPU":      {snapshot.Snapshot{Devices: []snapshot.Device{{}, {ProcessesUnknown: true}}}, nil},
	} {
		held, err := holdersIn(&tt.s)
		require.Equal(t, tt.want == nil, err != nil, name)
		require.Equal(t, tt.want, held, name)
	}
}
