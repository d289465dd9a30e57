package nvidiasmi

import (
	"context"

	"github.com/seed-3119e985/genv/snapshot"
)

// App is a process that computes on a device. Processes that only draw are not
// among them. The same process appears once for each device it uses, and under
// MIG once for each instance.
type App struct {
	GPU    snapshot.GPUUUID // of a device, or of a MIG instance ("MIG-…")
	PID    snapshot.PID
	Memory snapshot.Memory // unknown when the driver would not tell
}

// Usage is who uses the devices.
type Usage struct {
	Apps []App
	// NotListed are the devices on which the driver would not name the
	// processes: there may be any number of them.
	NotListed []snapshot.GPUUUID
}

// AppsArgs are the arguments whose output ParseApps reads. The name of a
// process is not asked for: it is the path of a program, whose owner could put
// a newline and a line about somebody else's process into it.
func AppsArgs() []string {
	return []string{"--query-compute-apps=gpu_uuid,pid,used_gpu_memory", "--format=csv,noheader,nounits"}
}

// Apps lists the processes that compute, in the order of nvidia-smi.
func (c *Client) Apps(ctx context.Context) (Usage, error) {
	out, err := c.ask(ctx, AppsArgs())
	if err != nil {
		return Usage{}, err
	}
	return ParseApps(out)
}

// ParseApps reads what nvidia-smi prints for AppsArgs. Its error is ErrGarbled:
// nothing of the output may be used.
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
