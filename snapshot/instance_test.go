package snapshot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

func TestMemoryOfAProfile(t *testing.T) {
	for profile, gib := range map[string]int64{
		"1g.5gb": 5, "1g.10gb": 10, "1g.10gb+me": 10, "7g.80gb": 80, "1c.3g.40gb": 40, "1g.24gb+me.all": 24,
	} {
		require.Equal(t, snapshot.MiB(gib<<10), snapshot.Instance{Profile: profile}.Memory(), profile)
	}
	for _, profile := range []string{"", "1g", "gb", "1g.gb", "1g.0gb", "1g.-5gb", "1g.5tb", "1g.99999999gb"} {
		require.False(t, snapshot.Instance{Profile: profile}.Memory().Known(), profile)
	}
}

func TestCheckInstance(t *testing.T) {
	for uuid, valid := range map[snapshot.GPUUUID]bool{
		"MIG-a0000000-0001-5fef-9c87-000000000001": true, "MIG-GPU-5a5c3f2e-0003/1/0": true,
		"": false, "GPU-1": false, "mig-1": false, "MIG-1,0": false, "MIG-1 2": false, "MIG-$(id)": false, "MIG-\x1b": false,
	} {
		require.Equal(t, valid, snapshot.CheckInstance(uuid) == nil, uuid)
	}
}
