package shell_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/shell"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestVariablesOfAMD: ROCR counts all GPUs, and HIP those that ROCR leaves.
func TestVariablesOfAMD(t *testing.T) {
	values := func(a shell.Active) map[string]string {
		values := map[string]string{}
		for _, v := range shell.Update(a).Set {
			values[v.Name] = v.Value
		}
		return values
	}
	two := values(shell.Active{EID: "1", AMD: true, Devices: []snapshot.DeviceIndex{3, 5}})
	require.Equal(t, []string{"3,5", "0,1", "0,1"}, []string{two["ROCR_VISIBLE_DEVICES"], two["HIP_VISIBLE_DEVICES"], two["CUDA_VISIBLE_DEVICES"]})
	none := values(shell.Active{EID: "1", AMD: true})
	require.Equal(t, []string{"-1", "-1", "-1"}, []string{none["ROCR_VISIBLE_DEVICES"], none["HIP_VISIBLE_DEVICES"], none["CUDA_VISIBLE_DEVICES"]})
	nvidia := values(shell.Active{EID: "1", Devices: []snapshot.DeviceIndex{3}})
	require.Equal(t, "3", nvidia["CUDA_VISIBLE_DEVICES"])
	require.NotContains(t, nvidia, "ROCR_VISIBLE_DEVICES", "a user's own stays")
	require.Contains(t, shell.Deactivate(true).Restore, "HIP_VISIBLE_DEVICES")
	require.NotContains(t, shell.Deactivate(false).Restore, "HIP_VISIBLE_DEVICES")
}
