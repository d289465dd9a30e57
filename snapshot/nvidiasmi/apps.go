package nvidiasmi

import (
	"context"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// App is a compute process on a device; graphics processes are not listed. A process
// appears once for each device that it uses, with MIG once for each instance.
type App struct {
	GPU    snapshot.GPUUUID // of a device, or of a MIG instance ("MIG-…")
	PID    snapshot.PID
	Memory snapshot.Memory // unknown if the driver does not report it
}

// Usage is who uses the devices.
type Usage struct {
	Apps []App
	// NotListed are the devices of which the driver does not list the processes:
	// there may be any number of them.
	NotListed []snapshot.GPUUUID
}

// GPUs are the ids of all devices and MIG instances in it.
func (u *Usage) GPUs() []snapshot.GPUUUID {
	all := slices.Clone(u.NotListed)
	for i := range u.Apps {
		all = append(all, u.Apps[i].GPU)
	}
	return all
}

// AppsArgs are the arguments for the output that ParseApps reads. They don't ask for the
// name of a process: it is the path of a program, into which a user can put a newline
// and a line about another user's process.
func AppsArgs() []string {
	return []string{"--query-compute-apps=gpu_uuid,pid,used_gpu_memory", "--format=csv,noheader,nounits"}
}

// Apps lists the compute processes, in the order of nvidia-smi.
func (q *Querier) Apps(ctx context.Context) (Usage, error) {
	return query(ctx, q, AppsArgs(), ParseApps)
}

// ParseApps parses the output for AppsArgs. After its error, ErrGarbled, no part of the
// output may be used.
func ParseApps(data []byte) (Usage, error) {
	var usage Usage
	for line := range lines(data) {
		fields, err := split(line, 3)
		if err != nil {
			return Usage{}, err
		}
		p := parser{line: line}
		app := App{GPU: p.uuid(fields[0]), Memory: p.memory(fields[2])}
		if known(fields[1]) == "" {
			usage.NotListed = append(usage.NotListed, app.GPU)
		} else {
			app.PID = p.pid(fields[1])
			usage.Apps = append(usage.Apps, app)
		}
		if p.err != nil {
			return Usage{}, p.err
		}
	}
	return usage, nil
}
