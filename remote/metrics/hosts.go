package metrics

import (
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Bounds of one host, whose devices and their models may be made up.
const (
	maxGPUs   = 64 // with series of their own
	maxModels = 16
)

// bytesPerHost is about what the series of a host with 8 GPUs take.
const bytesPerHost = 3 << 10

// Hosts has the series of hosts of a running controller, but for their ages. Of a host
// that failed only that, and that the states of its GPUs are unknown.
func Hosts(hosts []live.Host) []byte {
	w := Writer{text: make([]byte, 0, 4096+len(hosts)*bytesPerHost)}
	w.Gauge("genv_host_up", "Whether the host answered in the last cycle (1) or failed (0).", "host")
	for i := range hosts {
		w.Sample(number(hosts[i].Failure == nil), string(hosts[i].Name))
	}
	w.Gauge("genv_host_failure", "Why the host failed in the last cycle: 1 for the class of the failure.", "host", "class")
	for i := range hosts {
		if failure := hosts[i].Failure; failure != nil {
			w.Sample(1, string(hosts[i].Name), cut(string(failure.Class)))
		}
	}
	writeStates(&w, hosts)
	writeGPUs(&w, hosts)
	return w.Text()
}

// Ages has how old the data of each host is. It changes between two cycles.
func Ages(hosts []live.Host, now time.Time) []byte {
	var w Writer
	w.Gauge("genv_host_snapshot_age_seconds", "How long ago the cycle began in which the host answered last.", "host")
	for i := range hosts {
		if h := &hosts[i]; !h.Seen.IsZero() {
			w.Sample(max(now.Sub(h.Seen), 0).Seconds(), string(h.Name))
		}
	}
	return w.Text()
}

// number is 1 for true.
func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// writeStates writes how many GPUs of a model are in each state.
func writeStates(w *Writer, hosts []live.Host) {
	w.Gauge("genv_gpus", "GPUs by what they are used for: free, attached (and not used), idle (held by a process, utilization 0), busy, or unknown.", "host", "model", "state")
	states := gpus.States()
	for i := range hosts {
		h := &hosts[i]
		models, counts := countStates(h.GPUs)
		for _, model := range models {
			for _, state := range states {
				if h.Failure == nil || state == gpus.Unknown {
					w.Sample(float64(counts[modelState{model, state}]), string(h.Name), model, string(state))
				}
			}
		}
	}
}

type modelState struct {
	model string
	state gpus.State
}

// countStates counts the GPUs of a host. The models are in the order of the GPUs.
func countStates(list []gpus.GPU) (models []string, counts map[modelState]int) {
	counts = make(map[modelState]int, 4)
	seen := make(map[string]bool, 1)
	for i := range list {
		model := cut(list[i].Model)
		if !seen[model] && len(models) >= maxModels {
			model = Other
		}
		if !seen[model] {
			seen[model] = true
			models = append(models, model)
		}
		counts[modelState{model, list[i].State}]++
	}
	return models, counts
}

// writeGPUs writes the series of each GPU of the hosts that answered.
func writeGPUs(w *Writer, hosts []live.Host) {
	each := func(sample func(g *gpus.GPU, host, index string)) {
		for i := range hosts {
			if hosts[i].Failure != nil {
				continue
			}
			list := hosts[i].GPUs
			for j := range list[:min(len(list), maxGPUs)] {
				sample(&list[j], string(hosts[i].Name), list[j].Index.String())
			}
		}
	}
	w.Gauge("genv_gpu_info", "1 for each GPU, with its UUID and model.", "host", "gpu", "uuid", "model")
	each(func(g *gpus.GPU, host, index string) {
		w.Sample(1, host, index, cut(string(g.UUID)), cut(g.Model))
	})
	w.Gauge("genv_gpu_utilization_ratio", "Utilization of a GPU over the driver's last sample, from 0 to 1.", "host", "gpu")
	each(func(g *gpus.GPU, host, index string) {
		if g.Utilization != nil {
			w.Sample(float64(*g.Utilization)/100, host, index)
		}
	})
	memory := func(name, help string, of func(*gpus.GPU) *int64) {
		w.Gauge(name, help, "host", "gpu")
		each(func(g *gpus.GPU, host, index string) {
			if bytes := of(g); bytes != nil {
				w.Sample(float64(*bytes), host, index)
			}
		})
	}
	memory("genv_gpu_memory_used_bytes", "Memory of a GPU that is in use.", func(g *gpus.GPU) *int64 { return g.MemoryUsed })
	memory("genv_gpu_memory_size_bytes", "Memory of a GPU.", func(g *gpus.GPU) *int64 { return g.MemoryTotal })
	memory("genv_gpu_memory_unattributed_bytes", "Memory in use of a GPU whose state is unknown, because it belongs to no visible process.", unattributed)
}

func unattributed(g *gpus.GPU) *int64 {
	if g.State != gpus.Unknown || g.MemoryUsed == nil || *g.MemoryUsed == 0 {
		return nil
	}
	return g.MemoryUsed
}
