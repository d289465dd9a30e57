package metrics

import "fmt"

// Missing says which series of a host are left out, and why; nothing if none are. The
// texts stay the same while the reasons do.
func (h *Host) Missing() (reasons []string) {
	if h.Snapshot == nil || !h.Installed {
		return nil
	}
	if len(h.Snapshot.Environments) > maxEnvironments {
		reasons = append(reasons, fmt.Sprintf("more than %d environments: the series of each environment and user are left out", maxEnvironments))
	}
	if len(h.Snapshot.Processes) > maxProcesses || h.uses() > maxUses {
		reasons = append(reasons, fmt.Sprintf("more than %d processes, or %d uses of devices by processes: the series of each process are left out", maxProcesses, maxUses))
	}
	for i := range h.Snapshot.Processes {
		if h.Snapshot.Processes[i].EnvUnknown {
			return append(reasons, "processes whose environment is unknown: their series are left out, and the numbers of processes "+
				"of the environments and users that they may belong to. Only root can read which environments other users' processes are in")
		}
	}
	return reasons
}
