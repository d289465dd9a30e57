package metrics_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

func h100(index snapshot.DeviceIndex, state gpus.State) gpus.GPU {
	return gpus.GPU{Index: index, UUID: "GPU-" + snapshot.GPUUUID(index.String()), Model: "H100", State: state}
}

func measured(g gpus.GPU, percent int, used, total int64) gpus.GPU {
	g.Utilization, g.MemoryUsed, g.MemoryTotal = &percent, &used, &total
	return g
}

// states are the lines of a model's GPUs, from free on; states that aren't counted have none.
func states(model string, counts ...int) (lines string) {
	number := make(map[gpus.State]int)
	for i, state := range []gpus.State{gpus.Free, gpus.Attached, gpus.Idle, gpus.Busy, gpus.Unknown, gpus.Failed}[:len(counts)] {
		number[state] = counts[i]
	}
	for _, state := range gpus.States() {
		lines += fmt.Sprintf("gpus{host=\"a\",model=%q,state=%q} %d\n", model, state, number[state])
	}
	return lines
}

// divided is a host of which the device is divided into MIG instances, one of which is used.
func divided() *snapshot.Snapshot {
	return &snapshot.Snapshot{
		Devices: []snapshot.Device{{
			Index: 0, UUID: "GPU-0", Name: "H100", TotalMemory: snapshot.MiB(81559), UsedMemory: snapshot.MiB(87),
			Instances: []snapshot.Instance{{UUID: "MIG-a", Profile: "1g.10gb"}, {UUID: "MIG-b", Profile: "1g.10gb"}},
		}},
		Processes: []snapshot.Process{{PID: 70, EnvUnknown: true, Instances: []snapshot.GPUUUID{"MIG-a"}, Usage: []snapshot.DeviceUsage{{Index: 0}}}},
	}
}

func TestHosts(t *testing.T) {
	unknown := h100(0, gpus.Unknown)
	unknown.MemoryTotal = new(int64(80))
	for name, row := range map[string]struct {
		host live.FleetHost
		want string
	}{
		"one GPU in each state": {
			live.FleetHost{Name: "a", GPUs: []gpus.GPU{h100(0, gpus.Free), h100(1, gpus.Attached), h100(2, gpus.Idle), h100(3, gpus.Busy), h100(4, gpus.Unknown)}},
			`host_up{host="a"} 1
` + states("H100", 1, 1, 1, 1, 1) + `gpu_info{host="a",gpu="0",uuid="GPU-0",model="H100"} 1
gpu_info{host="a",gpu="1",uuid="GPU-1",model="H100"} 1
gpu_info{host="a",gpu="2",uuid="GPU-2",model="H100"} 1
gpu_info{host="a",gpu="3",uuid="GPU-3",model="H100"} 1
gpu_info{host="a",gpu="4",uuid="GPU-4",model="H100"} 1
`,
		},
		"what the driver measured": {
			live.FleetHost{Name: "a", GPUs: []gpus.GPU{measured(h100(7, gpus.Busy), 7, 1<<30, 80<<30)}},
			`host_up{host="a"} 1
` + states("H100", 0, 0, 0, 1, 0) + `gpu_info{host="a",gpu="7",uuid="GPU-7",model="H100"} 1
gpu_utilization_ratio{host="a",gpu="7"} 0.07
gpu_memory_used_bytes{host="a",gpu="7"} 1073741824
gpu_memory_size_bytes{host="a",gpu="7"} 85899345920
`,
		},
		"with MIG: the utilization is unknown": {
			live.FleetHost{Name: "a", GPUs: gpus.Of(divided())},
			`host_up{host="a"} 1
` + states("H100", 0, 0, 0, 1, 0) + `gpu_info{host="a",gpu="0",uuid="GPU-0",model="H100"} 1
gpu_memory_used_bytes{host="a",gpu="0"} 91226112
gpu_memory_size_bytes{host="a",gpu="0"} 85520809984
`,
		},
		"two models, and one that isn't reported": {
			live.FleetHost{Name: "a", GPUs: []gpus.GPU{h100(0, gpus.Free), {Index: 1, Model: "A100", State: gpus.Busy}, {Index: 2, State: gpus.Unknown}}},
			`host_up{host="a"} 1
` + states("H100", 1, 0, 0, 0, 0) + `` + states("A100", 0, 0, 0, 1, 0) + `` + states("", 0, 0, 0, 0, 1) + `gpu_info{host="a",gpu="0",uuid="GPU-0",model="H100"} 1
gpu_info{host="a",gpu="1",uuid="",model="A100"} 1
gpu_info{host="a",gpu="2",uuid="",model=""} 1
`,
		},
		"memory of no visible process": {
			live.FleetHost{Name: "a", GPUs: []gpus.GPU{measured(h100(0, gpus.Unknown), 0, 5<<30, 80<<30)}},
			`host_up{host="a"} 1
` + states("H100", 0, 0, 0, 0, 1) + `gpu_info{host="a",gpu="0",uuid="GPU-0",model="H100"} 1
gpu_utilization_ratio{host="a",gpu="0"} 0
gpu_memory_used_bytes{host="a",gpu="0"} 5368709120
gpu_memory_size_bytes{host="a",gpu="0"} 85899345920
gpu_memory_unattributed_bytes{host="a",gpu="0"} 5368709120
`,
		},
		"failed after it answered": {
			live.FleetHost{Name: "a", Failure: &remote.Failure{Class: remote.Timeout}, GPUs: []gpus.GPU{unknown}},
			`host_up{host="a"} 0
host_failure{host="a",class="timeout"} 1
gpus{host="a",model="H100",state="unknown"} 1
`,
		},
		"never answered": {
			live.FleetHost{Name: "a", Failure: &remote.Failure{Class: remote.HostKeyChanged}},
			`host_up{host="a"} 0
host_failure{host="a",class="host-key-changed"} 1
`,
		},
		"refused, since another controller acts on it": {
			live.FleetHost{Name: "a", Failure: &remote.Failure{Class: remote.Replaced}},
			`host_up{host="a"} 0
host_failure{host="a",class="replaced"} 1
`,
		},
		"where nothing can be ended": {
			live.FleetHost{Name: "a", Unable: "no helper"}, "host_up{host=\"a\"} 1\nhost_unable{host=\"a\"} 1\n",
		},
		"without GPUs": {live.FleetHost{Name: "a"}, "host_up{host=\"a\"} 1\n"},
	} {
		require.Equal(t, row.want, samples(metrics.Hosts([]live.FleetHost{row.host})), name)
	}
}

// TestFailedGPUs: one that failed, and one that failed and of which the UUID isn't known.
func TestFailedGPUs(t *testing.T) {
	host := live.FleetHost{Name: "a", GPUs: []gpus.GPU{h100(0, gpus.Failed), {Index: 1, Model: "H100", State: gpus.Failed}}}
	require.Equal(t, `host_up{host="a"} 1
`+states("H100", 0, 0, 0, 0, 0, 2)+`gpu_info{host="a",gpu="0",uuid="GPU-0",model="H100"} 1
gpu_info{host="a",gpu="1",uuid="",model="H100"} 1
gpu_failed{host="a",gpu="0",uuid="GPU-0"} 1
gpu_failed{host="a",gpu="1",uuid=""} 1
`, samples(metrics.Hosts([]live.FleetHost{host})))
}

// TestGuards: unknown is no series, and not off.
func TestGuards(t *testing.T) {
	for _, row := range []struct {
		guard   live.HostGuard
		service *bool
		want    string
	}{
		{live.HostGuard{}, nil, ""},
		{live.HostGuard{Mode: snapshot.GuardOff}, new(false), "host_guard{host=\"a\",mode=\"off\"} 1\nhost_service{host=\"a\"} 0\n"},
		{live.HostGuard{Mode: snapshot.GuardEnforce, Policy: snapshot.GuardEnforce}, new(true), "host_guard{host=\"a\",mode=\"enforce\"} 1\nhost_guard_policy{host=\"a\",mode=\"enforce\"} 1\nhost_service{host=\"a\"} 1\n"},
		{live.HostGuard{Policy: snapshot.GuardWatch}, nil, "host_guard_policy{host=\"a\",mode=\"watch\"} 1\n"},
	} {
		require.Equal(t, "host_up{host=\"a\"} 1\n"+row.want, samples(metrics.Hosts([]live.FleetHost{{Name: "a", Guard: row.guard, Service: row.service}})))
	}
}

func TestAges(t *testing.T) {
	hosts := []live.FleetHost{
		{Name: "a", Seen: noon.Add(-1500 * time.Millisecond)},
		{Name: "never"},
		{Name: "failed", Seen: noon.Add(-time.Hour), Failure: &remote.Failure{}},
		{Name: "stepped", Seen: noon.Add(time.Hour)},
	}
	require.Equal(t, `host_snapshot_age_seconds{host="a"} 1.5
host_snapshot_age_seconds{host="failed"} 3600
host_snapshot_age_seconds{host="stepped"} 0
`, samples(metrics.Ages(hosts, noon)))
}

// TestAHostThatMakesThingsUp: it has devices and models without end.
func TestAHostThatMakesThingsUp(t *testing.T) {
	host := live.FleetHost{Name: "a"}
	for i := range 1000 {
		g := h100(snapshot.DeviceIndex(i), gpus.Free)
		g.Model = strings.Repeat("x", i) + "\n"
		g.UUID = snapshot.GPUUUID(strings.Repeat(`"`, 10<<10))
		host.GPUs = append(host.GPUs, g)
	}
	text := samples(metrics.Hosts([]live.FleetHost{host}))
	require.Equal(t, 64, strings.Count(text, "gpu_info{"))
	require.Equal(t, 17, strings.Count(text, `state="free"`), "16 models, and the others together")
	require.Contains(t, text, `gpus{host="a",model="(other)",state="free"} 984`)
	for line := range strings.Lines(text) {
		require.Less(t, len(line), 400)
	}
}
