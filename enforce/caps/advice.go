package caps

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Loss is a device that a user would lose.
type Loss struct {
	Host  snapshot.Hostname
	EID   snapshot.EnvID
	Index snapshot.DeviceIndex
}

// maxAdvised is for how many environments Advice names the command: a message is short.
const maxAdvised = 4

// Advice names the devices that a user would lose: genv detach alone detaches all, also those that the user may
// keep. A process that goes on using a detached device breaks the rules and counts, too.
func Advice(losses []Loss, severalHosts, jobsEnd bool) string {
	type place struct {
		host snapshot.Hostname
		eid  snapshot.EnvID
	}
	devices := make(map[place][]snapshot.DeviceIndex)
	var places []place
	for _, l := range losses {
		at := place{l.Host, l.EID}
		if devices[at] == nil {
			places = append(places, at)
		}
		devices[at] = append(devices[at], l.Index)
	}
	if len(places) == 0 {
		return "End jobs that you need less."
	}
	var commands []string
	for _, at := range places[:min(len(places), maxAdvised)] {
		slices.Sort(devices[at])
		command := fmt.Sprintf("genv detach --index %s in the shell of environment %s", text.JoinIndices(devices[at]),
			text.Shown(string(at.eid)))
		if severalHosts {
			command += " on " + text.OneLine(string(at.host))
		}
		commands = append(commands, command)
	}
	advice := "Give back GPUs that you need less, such as these: " + strings.Join(commands, "; ") + "."
	if jobsEnd {
		advice += " End their jobs first; with genv run that is enough."
	}
	return advice
}
