package web_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
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
	text := "User eve was denied device 1, which is not attached to them: process 77 (python)"
	f.feed.Consume(&f.cycle, []enforce.Event{{
		Kind: enforce.EventDenied, Host: "gpu-01", Text: text,
		Finding: &enforce.Finding{Host: "gpu-01", User: "eve", PID: 77, Devices: []snapshot.DeviceIndex{1}},
	}})
	f.feed.Show(&f.cycle)
	handler := web.New(f.feed, f.options())

	page := pageOf(t, handler, "/h/gpu-01")
	for _, said := range []string{"kernel guard: enforce", "root owns the state files", text, `<span class="badge e-denied">denied</span>`} {
		present(t, page, said, "gpu-01")
	}
	present(t, pageOf(t, handler, "/h/gpu-02"), `<p class="notice bad">Kernel guard: unable: kernel: &lt;no BPF&gt;</p>`, "gpu-02")
	for _, host := range []string{"/h/gpu-03", "/h/gpu-04"} {
		for _, word := range []string{"guard", "owns", "unknown:"} {
			absent(t, pageOf(t, handler, host), word, host)
		}
	}
	present(t, pageOf(t, handler, "/u/eve"), text, "someone who was only denied has a page, too")
	require.Contains(t, pageOf(t, handler, "/findings"), text)
}
