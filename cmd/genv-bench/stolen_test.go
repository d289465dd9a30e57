package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStolen(t *testing.T) {
	before, err := parseProcessorTimes([]byte("cpu  100 10 50 800 20 0 10 10 7 7"))
	require.NoError(t, err)
	require.Equal(t, processorTimes{1000, 10}, before)
	after, err := parseProcessorTimes([]byte("cpu  150 10 50 800 20 0 10 60 7 7"))
	require.NoError(t, err)
	require.InDelta(t, 50, after.stolenSince(before), 0.001)
	require.Zero(t, before.stolenSince(before))
	for _, line := range []string{"", "cpu", "cpu x", "cpu 0 0 0 0 0 0 0 0"} {
		_, err := parseProcessorTimes([]byte(line))
		require.Error(t, err, line)
	}
}
