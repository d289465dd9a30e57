package nvidiasmi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Processes groups the lines by process, in ascending order of PID, each with its devices in ascending order of index.
// What can't be attributed to a device is a warning.
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
