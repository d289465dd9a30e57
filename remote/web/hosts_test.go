package web_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/web"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestGuards: a host's page says what its guard does, if there is one, and what it denied.
func TestGuards(t *testing.T) {
	f := newFleet(6, 2)
	on := true
	set := func(host int, g snapshot.Guard) {
		next := *f.cycle.Cluster.Hosts[host].Snapshot
		next.Guard, next.Service = &g, &on
		f.cycle.Cluster.Hosts[host].Snapshot = &next
	}
	set(0, snapshot.Guard{Mode: snapshot.GuardEnforce})
	set(1, snapshot.Guard{Mode: snapshot.GuardUnable, Reason: "kernel: <no BPF>"})
	no := false
	f.cycle.Cluster.Hosts[2].Snapshot.Service = &no
	f.cycle.Cluster.Hosts[2].Snapshot.Guard = &snapshot.Guard{Mode: snapshot.GuardOff}
	text := "users opened GPUs that are not attached to them, 3 times in the last hour"
	f.feed.Consume(&f.cycle, []enforce.Event{{
		Kind: enforce.EventGuard, Host: "gpu-01", Text: text,
	}})
	f.feed.Consume(f.cycle.AtEnd(), nil)
	handler := web.New(f.feed, f.options())

	page := pageOf(t, handler, "/h/gpu-01")
	for _, said := range []string{"kernel guard: enforce", "root owns the state files", text} {
		present(t, page, said, "gpu-01")
	}
	present(t, pageOf(t, handler, "/h/gpu-02"), `<p class="notice bad">Kernel guard: unable: kernel: &lt;no BPF&gt;</p>`, "gpu-02")
	for _, host := range []string{"/h/gpu-03", "/h/gpu-04"} {
		for _, word := range []string{"guard", "owns", "unknown:"} {
			absent(t, pageOf(t, handler, host), word, host)
		}
	}
	require.Contains(t, pageOf(t, handler, "/findings"), text)
}

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
	f.feed.Consume(f.cycle.AtEnd(), nil)
	page := pageOf(t, web.New(f.feed, f.options()), "/h/"+string(f.cycle.Cluster.Hosts[0].Name))
	for _, text := range []string{`data-label="Use" class="n">–<`, `data-label="State">busy<`, "<code>MIG-a</code></div>", "<code>MIG-b</code></div>"} {
		present(t, page, text, "the host")
	}
	absent(t, page, `data-label="State">idle`, "the host")
}

func TestWhoLeads(t *testing.T) {
	for name, row := range map[string]struct {
		election election.Shown
		want     string
	}{
		"it leads":     {election.Shown{Role: election.Leading, Since: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Epoch: 12}, "<p>this controller leads since 2026-11-20T12:00:00Z (epoch 12)</p>"},
		"a standby":    {election.Shown{Role: election.Standby, Leader: "ann <b>"}, `standby; &#34;ann &lt;b&gt;&#34; leads`},
		"without etcd": {election.Shown{Role: election.Expired, Error: "no answer"}, "this one only watches until etcd answers"},
	} {
		f := newFleet(2, 2)
		f.feed.Configure(live.Options{Now: func() time.Time { return f.now }, Enforcing: true, Election: func() *election.Shown { return &row.election }})
		f.feed.Consume(f.cycle.AtEnd(), nil)
		body := get(t, web.New(f.feed, f.options()), "/").Body.String()
		require.Contains(t, body, row.want, name)
	}
}
