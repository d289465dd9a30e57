package top

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// TestADeviceWithMIG: its utilization is unknown, which is neither 0 nor idle.
func TestADeviceWithMIG(t *testing.T) {
	list := gpus.Of(&snapshot.Snapshot{
		Devices: []snapshot.Device{{
			UUID: "GPU-0", Name: "H100", TotalMemory: snapshot.MiB(81559), UsedMemory: snapshot.MiB(87), Instances: []snapshot.Instance{{UUID: "MIG-a", Profile: "1g.10gb"}},
		}},
		Processes: []snapshot.Process{{PID: 70, Username: "alice", Instances: []snapshot.GPUUUID{"MIG-a"}, Usage: []snapshot.DeviceUsage{{Index: 0}}}},
	})
	fleet := &live.Fleet{Cycle: 1, Hosts: []live.Host{{Name: "gpu-1", Seen: noon, GPUs: list}}}
	for tab, want := range map[string]string{tabNames[tabHosts]: " ? ", tabNames[tabGPUs]: "A busy", tabNames[tabProcesses]: "A busy"} {
		m := viewed(t, fleet, 120, 16)
		for i, name := range tabNames {
			if name == tab {
				m.press(string(rune('1' + i)))
			}
		}
		shown := strings.Join(m.frame(), "\n")
		require.Contains(t, shown, want, tab)
		require.NotContains(t, shown, "idle ", tab)
		require.NotContains(t, shown, "0%", tab)
	}
}
