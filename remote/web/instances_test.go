package web_test

import (
	"testing"

	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestADeviceWithMIG: its utilization is unknown, and its instances are named.
func TestADeviceWithMIG(t *testing.T) {
	f := newFleet(1, 1)
	f.cycle.Cluster.Hosts[0].Snapshot = &snapshot.Snapshot{
		Environments: []snapshot.Environment{{EID: "7", UID: 1000, Username: "alice"}},
		Devices: []snapshot.Device{{
			UUID: "GPU-0", TotalMemory: snapshot.MiB(81559), UsedMemory: snapshot.MiB(87),
			Instances:   []snapshot.Instance{{UUID: "MIG-a", Profile: "1g.10gb"}, {UUID: "MIG-b"}},
			Attachments: []snapshot.Attachment{{EID: "7", Instances: []snapshot.GPUUUID{"MIG-a"}}},
		}},
		Processes: []snapshot.Process{{PID: 70, EID: "7", Username: "alice", Instances: []snapshot.GPUUUID{"MIG-b"}, Usage: []snapshot.DeviceUsage{{Index: 0}}}},
	}
	f.feed.Show(&f.cycle)
	page := pageOf(t, web.New(f.feed, f.options()), "/h/"+string(f.cycle.Cluster.Hosts[0].Name))
	for _, text := range []string{`data-label="Use" class="n">–<`, `data-label="State">busy<`, "<code>MIG-a</code></div>", "<code>MIG-b</code></div>"} {
		present(t, page, text, "the host")
	}
	absent(t, page, `data-label="State">idle`, "the host")
}
