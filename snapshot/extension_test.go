package snapshot_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// A host that takes requests of genv extend and has none differs from one that takes none,
// and the formats of 1.4.3 have no request.
func TestExtensionsInTheFormats(t *testing.T) {
	at, err := snapshot.ParseDate("20/11/2026 10:00:00")
	require.NoError(t, err)
	for name, list := range map[string][]snapshot.Extension{
		"none taken": nil,
		"none made":  {},
		"one":        {{ID: "a", UID: 7, EID: "1", Index: 3, Attached: at, For: 90 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &snapshot.Snapshot{Processes: []snapshot.Process{}, Environments: []snapshot.Environment{}, Devices: []snapshot.Device{}, Extensions: list}
			data, err := snapshot.EncodeNative(s)
			require.NoError(t, err)
			decoded, err := snapshot.DecodeNative(data)
			require.NoError(t, err)
			require.Equal(t, list, decoded.Extensions)
			old, err := snapshot.EncodeSnapshot(s)
			require.NoError(t, err)
			require.NotContains(t, string(old), "ext")
		})
	}
	_, err = snapshot.DecodeNative([]byte(`{"processes":[],"envs":[],"devices":[],"extensions":[{"id":"a","eid":"1","device":0,"attached":"20/11/2026 10:00:00","seconds":1e12}]}`))
	require.ErrorIs(t, err, snapshot.ErrInvalid)
}
