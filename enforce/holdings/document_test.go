package holdings_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/holdings"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestMemoryThatOverflows: sums of what holdings and decisions say must not turn negative, since a
// cap doesn't apply to what is below zero.
func TestMemoryThatOverflows(t *testing.T) {
	for _, row := range []struct {
		bytes   int64
		devices int
		valid   bool
	}{
		{holdings.UnknownBytes, 9000, true},
		{300 << 30, 3000, true},
		{1 << 44, 1024, true},
		{1 << 44, 1025, false},
		{1<<44 + 1, 1, false},
		{1 << 50, 9000, false},
		{-2, 1, false},
	} {
		s := shardOf(t, "a:0=1")
		s.Users[0].Devices[0].Bytes = row.bytes
		s.Users[0].Devices = slices.Repeat(s.Users[0].Devices, row.devices)
		if !row.valid {
			require.ErrorIs(t, s.Check(), holdings.ErrInvalid, "%+v", row)
			continue
		}
		require.NoError(t, s.Check(), "%+v", row)
		if row.bytes > 0 {
			over := holdings.Decide(slices.Repeat([]*holdings.Shard{s}, 64), limited(holdings.Memory, 1))[0].Over
			require.Len(t, over, 1, "%+v", row)
			require.Equal(t, 63*int64(row.devices)*row.bytes, over[0].Elsewhere.Bytes)
			require.NoError(t, (&holdings.Decision{Over: over}).Check())
		}
	}
}

func TestImpossibleDecisions(t *testing.T) {
	for what, over := range map[string]holdings.Over{
		"a cap":       {Cap: 7},
		"a limit":     {Limit: math.MinInt64},
		"more memory": {Elsewhere: holdings.Amount{Bytes: math.MaxInt64}},
		"less memory": {Elsewhere: holdings.Amount{Bytes: -1}},
		"devices":     {Elsewhere: holdings.Amount{Count: math.MaxInt}},
		"hosts":       {Elsewhere: holdings.Amount{Hosts: -1}},
		"freed":       {FreedElsewhere: math.MaxInt64},
	} {
		d := holdings.Decision{Over: []holdings.Over{{User: "alice", Limit: 4}, over}}
		require.ErrorIs(t, d.Check(), holdings.ErrInvalid, what)
		d.Over = d.Over[:1]
		require.NoError(t, d.Check())
	}
}

// TestClaimedMemory: whatever a state file claims, holdings stay valid.
func TestClaimedMemory(t *testing.T) {
	huge := snapshot.MustMemory("9223372036854775807b")
	var d holdings.Device
	for range 3 {
		d.AddCapacity(huge, snapshot.Memory{})
		d.AddUsed(huge)
	}
	d.Settle(snapshot.Memory{}, nil)
	require.Equal(t, int64(1<<44), d.Bytes)
	require.Equal(t, int64(1<<44), d.Used)
	d.Settle(snapshot.MiB(1), nil)
	require.Equal(t, int64(1<<20), d.Bytes)
}
