package nvidiasmi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
)

// App is a compute process on a device, once for each of its devices.
type App struct {
	GPU      snapshot.GPUUUID
	PID      snapshot.PID
	Memory   snapshot.Memory  // unknown if the driver does not report it
	Instance snapshot.GPUUUID // its MIG instance, if Locate or ToParents found it
}

// Usage has the users of devices.
type Usage struct {
	Apps      []App
	NotListed []snapshot.GPUUUID // devices whose processes the driver doesn't list; "" is any
	Lost      int                // number of GPUs that nvidia-smi reports here as lost
	Warnings  []string
	Time      Time
}

// GPUs lists the ids of all its devices and MIG instances.
func (u *Usage) GPUs() []snapshot.GPUUUID {
	all := slices.Clone(u.NotListed)
	for i := range u.Apps {
		all = append(all, u.Apps[i].GPU)
	}
	return all
}

// ToParents attributes what is listed for MIG instances, named by UUIDs or "MIG-GPU-…/1/0", to their GPUs.
func (u *Usage) ToParents(gpus []GPU) {
	for i := range u.Apps {
		app := &u.Apps[i]
		gpu, listed := parentOf(app.GPU, gpus)
		if listed {
			app.Instance = app.GPU
		}
		app.GPU = gpu
	}
	for i, id := range u.NotListed {
		u.NotListed[i], _ = parentOf(id, gpus)
	}
}

// parentOf returns a MIG instance's GPU, and whether that lists it; id itself for anything else.
func parentOf(id snapshot.GPUUUID, gpus []GPU) (gpu snapshot.GPUUUID, listed bool) {
	if !isInstance(id) {
		return id, false
	}
	for i := range gpus {
		g := &gpus[i]
		listed = slices.ContainsFunc(g.Instances, func(i snapshot.Instance) bool { return i.UUID == id })
		if g.UUID != "" && (listed || strings.HasPrefix(string(id), "MIG-"+string(g.UUID)+"/")) {
			return g.UUID, listed
		}
	}
	return id, false
}

func isInstance(id snapshot.GPUUUID) bool { return strings.HasPrefix(string(id), "MIG-") }

// Locate sets the MIG instances of processes. find returns that of a process on a GPU with these instances.
func (u *Usage) Locate(gpus []GPU, find func(app App, instances []snapshot.Instance) snapshot.GPUUUID) {
	for i := range u.Apps {
		app := &u.Apps[i]
		at := slices.IndexFunc(gpus, func(g GPU) bool { return g.UUID == app.GPU && len(g.Instances) > 0 })
		if at >= 0 {
			app.Instance = find(*app, gpus[at].Instances)
		}
	}
}

// Unreported lists the devices whose processes the driver doesn't list: all, if one of them is unknown.
func (u *Usage) Unreported(devices []snapshot.Device) (indices []snapshot.DeviceIndex) {
	anyOf := slices.ContainsFunc(u.NotListed, func(gpu snapshot.GPUUUID) bool {
		return gpu == "" || !slices.ContainsFunc(devices, func(d snapshot.Device) bool { return d.UUID == gpu })
	})
	for i := range devices {
		if d := &devices[i]; anyOf || slices.Contains(u.NotListed, d.UUID) {
			indices = append(indices, d.Index)
		}
	}
	return indices
}

// AppsArgs returns the arguments for ParseApps. They omit names of processes: a user can put a newline and a line about
// another user's process into one.
func AppsArgs() []string {
	return []string{"--query-compute-apps=gpu_uuid,pid,used_gpu_memory", "--format=csv,noheader,nounits"}
}

// Apps lists the compute processes in nvidia-smi's order.
func (q *Querier) Apps(ctx context.Context, oldest time.Duration) (Usage, error) {
	usage, at, err := query(ctx, q, AppsArgs(), oldest, ParseApps)
	usage.Time = at
	return usage, err
}

// ParseApps parses the answer for AppsArgs. An invalid row may be any process on its GPU, or on any. The error is an
// *ExitError.
func ParseApps(out RunResult) (Usage, error) {
	a := sortLines(out)
	usage := Usage{Lost: len(a.lost)}
	for _, line := range a.lines {
		fields := strings.SplitN(line, ",", 3)
		uuid := known(fields[0])
		if len(fields) == 1 || uuid != "" && !isUUID(uuid) {
			a.warn(line)
			continue
		}
		app := App{GPU: snapshot.GPUUUID(uuid)}
		if pid, ok := number(known(fields[1]), math.MaxInt32); len(fields) == 3 && ok && pid > 0 {
			app.PID = snapshot.PID(pid)
			if n, ok := number(known(fields[2]), maxMiB); ok {
				app.Memory = snapshot.MiB(n)
			}
			usage.Apps = append(usage.Apps, app)
			continue
		}
		usage.NotListed = append(usage.NotListed, app.GPU)
		if !strings.Contains(line, "[N/A]") && !strings.Contains(line, "[Not Supported]") { // for ever on some models
			a.warn(line)
		}
	}
	odd := len(a.lines) - len(usage.Apps) - len(usage.NotListed)
	if len(usage.Apps)+len(usage.NotListed) == 0 && (odd > 0 || !a.complete() && usage.Lost == 0) {
		return Usage{}, a.failure()
	}
	if odd > 0 || !a.complete() {
		usage.NotListed = append(usage.NotListed, "")
	}
	usage.Warnings = a.warnings
	return usage, nil
}

// Processes groups the lines by PID, each with its devices by index. Usage of unknown devices becomes a warning.
func (u *Usage) Processes(indices map[snapshot.GPUUUID]snapshot.DeviceIndex) ([]snapshot.Process, []string) {
	var warnings []string
	for _, gpu := range u.NotListed {
		warnings = append(warnings, fmt.Sprintf("the driver does not report which processes use %s: there may be any",
			cmp.Or(gpu, "a GPU")))
	}
	byPID := map[snapshot.PID]*snapshot.Process{}
	for _, app := range u.Apps {
		index, ok := indices[app.GPU]
		if !ok {
			warnings = append(warnings, fmt.Sprintf("process %d uses %s, which the driver does not list: it is "+
				"attributed to no GPU", app.PID, cmp.Or(app.GPU, "a GPU without an id")))
			continue
		}
		if byPID[app.PID] == nil {
			byPID[app.PID] = &snapshot.Process{PID: app.PID}
		}
		p := byPID[app.PID]
		if app.Instance != "" && !slices.Contains(p.Instances, app.Instance) {
			p.Instances = append(p.Instances, app.Instance)
		}
		switch same := p.Uses(index); { // several lines count the same memory
		case same == nil:
			p.Usage = append(p.Usage, snapshot.DeviceUsage{Index: index, Memory: app.Memory})
		case !same.Memory.Known() || app.Memory.Bytes() > same.Memory.Bytes():
			same.Memory = app.Memory
		}
	}
	processes := make([]snapshot.Process, 0, len(byPID))
	for _, pid := range slices.Sorted(maps.Keys(byPID)) {
		p := byPID[pid]
		slices.Sort(p.Instances)
		slices.SortFunc(p.Usage, func(a, b snapshot.DeviceUsage) int { return cmp.Compare(a.Index, b.Index) })
		processes = append(processes, *p)
	}
	return processes, warnings
}
