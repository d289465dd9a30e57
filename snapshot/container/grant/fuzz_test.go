package grant_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/container/oci"
)

// FuzzAsked: what a container's variables and annotations ask for is a request that root's
// service accepts too, or an error, which only a container that asks for GPUs has.
func FuzzAsked(f *testing.F) {
	f.Add("all", "2", "4g", "web", "cdi.k8s.io/x", "nvidia.com/gpu=0")
	f.Add("0,GPU-1", "all", "-1", "a\nb", "other", "nvidia.com/gpu=all")
	f.Add("void", "65536", "0", "", "cdi.k8s.io/", ",nvidia.com/gpu=,,")
	f.Fuzz(func(t *testing.T, visible, count, memory, name, key, value string) {
		data, err := json.Marshal(map[string]any{
			"process": map[string]any{"env": []string{
				"NVIDIA_VISIBLE_DEVICES=" + visible, grant.GPUs + "=" + count, grant.GPUMemory + "=" + memory, grant.Name + "=" + name,
			}},
			"annotations": map[string]string{key: value},
		})
		require.NoError(t, err)
		c, err := oci.Parse(data)
		require.NoError(t, err)
		for _, nvidia := range []bool{false, true} {
			r, err := grant.Asked(c, nvidia)
			if err != nil {
				require.ErrorIs(t, err, grant.ErrRequest)
				continue
			}
			require.NoError(t, r.Check())
			require.NotContains(t, r.Names, "")
			require.NotContains(t, r.Names, "all")
			if count == "2" {
				require.Equal(t, 2, r.Count)
			}
		}
	})
}
