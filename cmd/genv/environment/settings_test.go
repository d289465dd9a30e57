package environment

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

func TestSetMemory(t *testing.T) {
	for _, text := range []string{"1000000", "1m", "977ki", "4g", "16gi", "4000000000"} {
		var c snapshot.EnvConfig
		require.NoError(t, SetMemory(&c, text), text)
		require.Equal(t, text, c.GPUMemory.String())
	}
	for _, text := range []string{"4", "16", "80000", "999999", "4k", "0", "0g", "g", "-4g"} {
		var c snapshot.EnvConfig
		require.Error(t, SetMemory(&c, text), text)
		require.False(t, c.GPUMemory.Known(), text)
	}
	require.EqualError(t, SetMemory(&snapshot.EnvConfig{}, "4"), `gpu-memory "4" is less than a megabyte: write it with a unit, such as 4g`)
	c := snapshot.EnvConfig{GPUMemory: snapshot.MustMemory("4g")}
	require.NoError(t, SetMemory(&c, ""))
	require.False(t, c.GPUMemory.Known())
}
