package metrics

import (
	"cmp"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Bounds, as a host may invent devices and models.
const (
	maxGPUs   = 64 // with their own series
	maxModels = 16
)

var hostFamilies = []family{
	{"genv_host_up", "", "Whether the host answered in the last cycle (1) or failed (0)."},
	{"genv_host_failure", "class", "Why the host failed in the last cycle: 1 for the class of the failure."},
	{"genv_host_guard", "mode", "What the kernel guard of the host does: 1 for the mode off, watch, enforce, or " +
		"unable to do what was ordered."},
	{"genv_host_guard_policy", "mode", "What the policy asks of the kernel guard of a host that answered: 1 for the " +
		"mode watch or enforce."},
	{"genv_host_unable", "", "1 for each host that answered where nothing can be ended, or its order failed as a " +
		"whole."},
	{"genv_host_service", "", "Whether root owns the state files of the host (1), with genv host serve."},
	{"genv_waiting_gpus", "", "GPUs for which commands wait with --wait, on hosts with genv host serve."},
	{"genv_longest_wait_seconds", "", "For how long the first of these commands has been waiting; 0 if none waits."},
	{"genv_reserved_gpus", "", "GPUs of the host that are reserved now, whether or not their owners use them."},
	{"genv_gpus", "model state", "GPUs by what they are used for: free, attached (and not used), idle (used by a " +
		"process, utilization 0), busy, unknown, failed, unusable (its compute mode is Prohibited, or it is in MIG " +
		"mode and has no instance), or mig (in MIG mode, and no instance is attached or used)."},
	{"genv_gpu_info", "gpu uuid model", "1 for each GPU, with its UUID and model."},
	{"genv_gpu_failed", "gpu uuid", "1 for each GPU that doesn't work, with its UUID if it is known."},
	{"genv_gpu_utilization_ratio", "gpu", "Utilization of a GPU over the driver's last sample, from 0 to 1."},
	{"genv_gpu_memory_used_bytes", "gpu", "Memory of a GPU that is in use."},
	{"genv_gpu_memory_size_bytes", "gpu", "Memory of a GPU."},
	{"genv_gpu_memory_unattributed_bytes", "gpu", "Memory in use of a GPU whose state is unknown, because it belongs " +
		"to no visible process."},
}

// Hosts has hosts' series except ages. A failed host has only its failure, and unknown GPUs.
func Hosts(hosts []live.FleetHost) []byte {
	g := begin(hostFamilies, "", "host ")
	for i := range hosts {
		h := &hosts[i]
		g.host = []string{string(h.Name)}
		writeHost(g, h)
		writeStates(g, h)
		if h.Failure == nil {
			for j := range h.GPUs[:min(len(h.GPUs), maxGPUs)] {
				writeGPU(g, &h.GPUs[j])
			}
		}
	}
	return g.text()
}

func writeHost(g *gauges, h *live.FleetHost) {
	g.add("genv_host_up", number(h.Failure == nil))
	if h.Failure != nil {
		g.add("genv_host_failure", 1, usage.Cut(string(h.Failure.Class)))
	}
	for family, mode := range map[string]snapshot.GuardMode{
		"genv_host_guard": h.Guard.Mode, "genv_host_guard_policy": h.Guard.Policy,
	} {
		if mode != "" {
			g.add(family, 1, string(mode))
		}
	}
	if h.Failure == nil && h.Unable != "" {
		g.add("genv_host_unable", 1)
	}
	if h.Service != nil {
		g.add("genv_host_service", number(*h.Service))
	}
	if h.Waiting != nil {
		g.add("genv_waiting_gpus", float64(h.Waiting.GPUs))
		g.add("genv_longest_wait_seconds", float64(h.Waiting.Longest))
	}
	addKnown(g, "genv_reserved_gpus", h.Reserved)
}

func writeStates(g *gauges, h *live.FleetHost) {
	type modelState struct {
		model string
		state gpus.State
	}
	var models []string
	counts, known := make(map[modelState]int, 4), make(map[string]bool, 1)
	for i := range h.GPUs {
		model := usage.Cut(h.GPUs[i].Model)
		if !known[model] && len(models) >= maxModels {
			model = Other
		}
		if !known[model] {
			known[model], models = true, append(models, model)
		}
		counts[modelState{model, h.GPUs[i].State}]++
	}
	for _, model := range models {
		for _, state := range gpus.States() {
			if h.Failure == nil || state == gpus.Unknown {
				g.add("genv_gpus", float64(counts[modelState{model, state}]), model, string(state))
			}
		}
	}
}

func writeGPU(g *gauges, gpu *gpus.GPU) {
	index, uuid := gpu.Index.String(), usage.Cut(string(gpu.UUID))
	g.add("genv_gpu_info", 1, index, uuid, usage.Cut(gpu.Model))
	if gpu.State == gpus.Failed {
		g.add("genv_gpu_failed", 1, index, uuid)
	}
	if gpu.Utilization != nil {
		g.add("genv_gpu_utilization_ratio", float64(*gpu.Utilization)/100, index)
	}
	addKnown(g, "genv_gpu_memory_used_bytes", gpu.MemoryUsed, index)
	addKnown(g, "genv_gpu_memory_size_bytes", gpu.MemoryTotal, index)
	if gpu.State == gpus.Unknown && *cmp.Or(gpu.MemoryUsed, new(int64)) != 0 {
		g.add("genv_gpu_memory_unattributed_bytes", float64(*gpu.MemoryUsed), index)
	}
}

// Ages has the age of hosts' data, which changes between cycles.
func Ages(hosts []live.FleetHost, now time.Time) []byte {
	var w Writer
	w.Gauge("genv_host_snapshot_age_seconds", "How long ago the cycle began in which the host answered last.", "host")
	for i := range hosts {
		if h := &hosts[i]; !h.Seen.IsZero() {
			w.Sample(max(now.Sub(h.Seen), 0).Seconds(), string(h.Name))
		}
	}
	return w.Text()
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
