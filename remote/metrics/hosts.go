package metrics

import (
	"fmt"
	"time"

	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// Bounds of one host: its devices and their models may be made up.
const (
	maxGPUs   = 64 // with series of their own
	maxModels = 16
)

// Hosts has the series of hosts of a running controller, but for their ages. Of a host
// that failed only that, and that the states of its GPUs are unknown.
func Hosts(hosts []live.Host) []byte {
	var w Writer
	for i := range hostFamilies {
		f := &hostFamilies[i]
		w.Gauge(f.name, f.help, f.labels...)
		for j := range hosts {
			f.write(&w, &hosts[j])
		}
	}
	return w.Text()
}

// hostFamilies are gauges with the host as the first label.
var hostFamilies = []struct {
	name, help string
	labels     []string
	write      func(*Writer, *live.Host)
}{
	{
		"genv_host_up", "Whether the host answered in the last cycle (1) or failed (0).", hostLabel,
		func(w *Writer, h *live.Host) { w.Sample(number(h.Failure == nil), string(h.Name)) },
	},
	{
		"genv_host_failure", "Why the host failed in the last cycle: 1 for the class of the failure.",
		[]string{"host", "class"},
		func(w *Writer, h *live.Host) {
			if h.Failure != nil {
				w.Sample(1, string(h.Name), cut(string(h.Failure.Class)))
			}
		},
	},
	{"genv_host_guard", "What the kernel guard of the host does: 1 for the mode off, watch, enforce, or unable to do " +
		"what was ordered.", guardLabels, func(w *Writer, h *live.Host) { writeGuard(w, h, h.Guard.Mode) }},
	{"genv_host_guard_policy", "What the policy asks of the kernel guard of a host that answered: 1 for the mode " +
		"watch or enforce.", guardLabels, func(w *Writer, h *live.Host) { writeGuard(w, h, h.Guard.Policy) }},
	{
		"genv_host_unable", "1 for each host that answered where nothing can be ended, or its order failed as a whole.",
		[]string{"host"},
		func(w *Writer, h *live.Host) {
			if h.Failure == nil && h.Unable != "" {
				w.Sample(1, string(h.Name))
			}
		},
	},
	{
		"genv_host_service", "Whether root owns the state files of the host (1), with genv host serve.", hostLabel,
		func(w *Writer, h *live.Host) {
			if h.Service != nil {
				w.Sample(number(*h.Service), string(h.Name))
			}
		},
	},
	{
		"genv_waiting_gpus", "GPUs for which commands wait with --wait, on hosts with genv host serve.", hostLabel,
		func(w *Writer, h *live.Host) {
			if h.Waiting != nil {
				w.Sample(float64(h.Waiting.GPUs), string(h.Name))
			}
		},
	},
	{
		"genv_longest_wait_seconds", "For how long the first of these commands has been waiting; 0 if none waits.",
		hostLabel,
		func(w *Writer, h *live.Host) {
			if h.Waiting != nil {
				w.Sample(float64(h.Waiting.Longest), string(h.Name))
			}
		},
	},
	{
		"genv_reserved_gpus", "GPUs of the host that are reserved now, whether or not their owners use them.", hostLabel,
		func(w *Writer, h *live.Host) {
			if h.Reserved != nil {
				w.Sample(float64(*h.Reserved), string(h.Name))
			}
		},
	},
	{
		"genv_gpus", "GPUs by what they are used for: free, attached (and not used), idle (held by a process, " +
			"utilization 0), busy, unknown, failed, unusable (its compute mode is Prohibited, or it is in MIG mode and has " +
			"no instance), or mig (in MIG mode, and no instance is attached or used).",
		[]string{"host", "model", "state"},
		writeStates,
	},
	{
		"genv_gpu_info", "1 for each GPU, with its UUID and model.",
		[]string{"host", "gpu", "uuid", "model"},
		ofGPUs(func(w *Writer, g *gpus.GPU, host, index string) {
			w.Sample(1, host, index, cut(string(g.UUID)), cut(g.Model))
		}),
	},
	{
		"genv_gpu_failed", "1 for each GPU that doesn't work, with its UUID if it is known.",
		[]string{"host", "gpu", "uuid"},
		ofGPUs(func(w *Writer, g *gpus.GPU, host, index string) {
			if g.State == gpus.Failed {
				w.Sample(1, host, index, cut(string(g.UUID)))
			}
		}),
	},
	{
		"genv_gpu_utilization_ratio", "Utilization of a GPU over the driver's last sample, from 0 to 1.", gpuLabels,
		ofGPUs(func(w *Writer, g *gpus.GPU, host, index string) {
			if g.Utilization != nil {
				w.Sample(float64(*g.Utilization)/100, host, index)
			}
		}),
	},
	{
		"genv_gpu_memory_used_bytes", "Memory of a GPU that is in use.", gpuLabels,
		ofMemory(func(g *gpus.GPU) *int64 { return g.MemoryUsed }),
	},
	{
		"genv_gpu_memory_size_bytes", "Memory of a GPU.", gpuLabels,
		ofMemory(func(g *gpus.GPU) *int64 { return g.MemoryTotal }),
	},
	{"genv_gpu_memory_unattributed_bytes", "Memory in use of a GPU whose state is unknown, because it belongs to " +
		"no visible process.", gpuLabels, ofMemory(unattributed)},
}

var (
	hostLabel   = []string{"host"}
	gpuLabels   = []string{"host", "gpu"}
	guardLabels = []string{"host", "mode"}
)

func writeGuard(w *Writer, h *live.Host, mode snapshot.GuardMode) {
	if mode != "" {
		w.Sample(1, string(h.Name), string(mode))
	}
}

// ofGPUs writes series of each GPU of a host that answered.
func ofGPUs(sample func(w *Writer, g *gpus.GPU, host, index string)) func(*Writer, *live.Host) {
	return func(w *Writer, h *live.Host) {
		if h.Failure != nil {
			return
		}
		for i := range h.GPUs[:min(len(h.GPUs), maxGPUs)] {
			sample(w, &h.GPUs[i], string(h.Name), h.GPUs[i].Index.String())
		}
	}
}

func ofMemory(of func(*gpus.GPU) *int64) func(*Writer, *live.Host) {
	return ofGPUs(func(w *Writer, g *gpus.GPU, host, index string) {
		if memory := of(g); memory != nil {
			w.Sample(float64(*memory), host, index)
		}
	})
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
func writeStates(w *Writer, h *live.Host) {
	models, counts := countStates(h.GPUs)
	for _, model := range models {
		for _, state := range gpus.States() {
			if h.Failure == nil || state == gpus.Unknown {
				w.Sample(float64(counts[modelState{model, state}]), string(h.Name), model, string(state))
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

func unattributed(g *gpus.GPU) *int64 {
	if g.State != gpus.Unknown || g.MemoryUsed == nil || *g.MemoryUsed == 0 {
		return nil
	}
	return g.MemoryUsed
}

type view struct {
	Host
	hasGenv   bool
	eids      []snapshot.EnvID // of the processes; empty for one outside all environments
	attached  int              // devices with an attachment
	devicesOf map[snapshot.EnvID][]snapshot.DeviceIndex
	members   map[snapshot.EnvID]count
	userNames []snapshot.Username // in the order of their first environments
	byUser    map[snapshot.Username]*user
}

// count is a number of processes; unknown if there may be more.
type count struct {
	processes int
	unknown   bool
}

type user struct {
	count
	environments int
	devices      map[snapshot.DeviceIndex]bool
}

func newView(h *Host) *view {
	v := &view{
		Host: *h, hasGenv: h.Installed && h.Snapshot != nil, devicesOf: make(map[snapshot.EnvID][]snapshot.DeviceIndex),
		members: make(map[snapshot.EnvID]count), byUser: make(map[snapshot.Username]*user),
	}
	switch {
	case v.Snapshot == nil:
		v.Snapshot = &snapshot.Snapshot{}
	case !v.Installed:
		v.Snapshot = &snapshot.Snapshot{Devices: v.Snapshot.Devices}
	}
	v.countDevices()
	v.countProcesses()
	for i := range v.Snapshot.Environments {
		v.countUser(&v.Snapshot.Environments[i])
	}
	return v
}

func (v *view) countDevices() {
	for i := range v.Snapshot.Devices {
		d := &v.Snapshot.Devices[i]
		if len(d.Attachments) > 0 {
			v.attached++
		}
		for _, a := range d.Attachments {
			v.devicesOf[a.EID] = append(v.devicesOf[a.EID], d.Index)
		}
	}
}

// countProcesses counts the processes of each environment. A process in an unknown
// environment may be in each one that admits it.
func (v *view) countProcesses() {
	registered := snapshot.ByID(v.Snapshot.Environments)
	v.eids = make([]snapshot.EnvID, len(v.Snapshot.Processes))
	var unknown []*snapshot.Process
	for i := range v.Snapshot.Processes {
		p := &v.Snapshot.Processes[i]
		if p.EnvUnknown {
			unknown = append(unknown, p)
			continue
		}
		if snapshot.EnvironmentOf(p, registered) != nil {
			v.eids[i] = p.EID
			n := v.members[p.EID]
			n.processes++
			v.members[p.EID] = n
		}
	}
	uids, anyone := owners(unknown)
	for i := range v.Snapshot.Environments {
		e := &v.Snapshot.Environments[i]
		if n := v.members[e.EID]; anyone || uids[e.UID] {
			n.unknown = true
			v.members[e.EID] = n
		}
	}
}

// owners are the uids of processes. Those of root, and those with an unknown uid, may be in anyone's environment.
func owners(processes []*snapshot.Process) (uids map[snapshot.UID]bool, anyone bool) {
	uids = make(map[snapshot.UID]bool)
	for _, p := range processes {
		if p.UID == nil || *p.UID == 0 {
			return nil, true
		}
		uids[*p.UID] = true
	}
	return uids, false
}

func (v *view) countUser(e *snapshot.Environment) {
	name := e.Username
	if name == "" { // the host has none
		name = snapshot.Username(fmt.Sprintf("uid %d", e.UID))
	}
	u := v.byUser[name]
	if u == nil {
		u = &user{devices: make(map[snapshot.DeviceIndex]bool)}
		v.byUser[name] = u
		v.userNames = append(v.userNames, name)
	}
	u.environments++
	u.processes += v.members[e.EID].processes
	u.unknown = u.unknown || v.members[e.EID].unknown
	for _, index := range v.devicesOf[e.EID] {
		u.devices[index] = true
	}
}
