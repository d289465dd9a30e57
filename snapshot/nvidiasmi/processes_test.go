package nvidiasmi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// TestProcessesOfInstances: the MIG instances of a device count for it, each once.
func TestProcessesOfInstances(t *testing.T) {
	mib := snapshot.MiB
	usage := nvidiasmi.Usage{
		Apps: []nvidiasmi.App{
			{GPU: "GPU-0", PID: 7, Memory: mib(150), Instance: "MIG-1"},
			{GPU: "GPU-0", PID: 7, Memory: mib(150), Instance: "MIG-2"},
			{GPU: "GPU-1", PID: 7, Memory: mib(5)},
			{GPU: "GPU-0", PID: 9},
			{GPU: "GPU-gone", PID: 11},
		},
		NotListed: []snapshot.GPUUUID{"GPU-2"},
	}
	list, warnings := usage.Processes(map[snapshot.GPUUUID]snapshot.DeviceIndex{"GPU-0": 0, "GPU-1": 1})
	require.Equal(t, []snapshot.Process{
		{PID: 7, Usage: []snapshot.DeviceUsage{{Index: 0, Memory: mib(150)}, {Index: 1, Memory: mib(5)}}, Instances: []snapshot.GPUUUID{"MIG-1", "MIG-2"}},
		{PID: 9, Usage: []snapshot.DeviceUsage{{Index: 0}}},
	}, list)
	require.Equal(t, []string{
		"the driver does not report which processes use GPU-2: there may be any",
		"process 11 uses GPU-gone, which the driver does not list: it is attributed to no GPU",
	}, warnings)
}
