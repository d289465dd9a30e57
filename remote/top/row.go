package top

import (
	"fmt"
	"slices"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// identity is what a row is about. It is the same in all updates.
type identity struct {
	tab     tabID
	host    snapshot.Hostname
	uuid    snapshot.GPUUUID
	gpu     snapshot.DeviceIndex
	pid     snapshot.PID
	start   snapshot.StartTime
	user    snapshot.Username
	finding string
	event   uint64
}

// String names the row for people.
func (id identity) String() string {
	switch id.tab {
	case tabGPUs:
		return fmt.Sprintf("GPU %d of %s", id.gpu, draw.Shown(string(id.host)))
	case tabUsers:
		return "user " + draw.Shown(string(id.user))
	case tabFindings:
		return "the finding"
	case tabProcesses:
		return fmt.Sprintf("process %d on %s", id.pid, draw.Shown(string(id.host)))
	case tabHistory:
		return "the event"
	}
	return "host " + draw.Shown(string(id.host))
}

// row is a line of a tab. Of the fields after id those are set that the tab has; they
// belong to the fleet, and are not changed.
type row struct {
	id      identity
	host    *live.Host
	gpu     *gpus.GPU
	process *process
	user    *live.User
	finding *live.Finding
	event   *live.Event
	failure *remote.Failure
}

// process is a process with all GPUs of its host that it uses.
type process struct {
	*gpus.Process
	gpus   []*gpus.GPU
	memory *int64 // of all of them; nil if it is unknown for one
}

// scope is what a tab is narrowed to after Enter; empty fields narrow nothing.
type scope struct {
	host snapshot.Hostname
	gpu  *snapshot.DeviceIndex
	user snapshot.Username
}

func (s scope) String() string {
	switch {
	case s.gpu != nil:
		return fmt.Sprintf("GPU %d of %s", *s.gpu, draw.Shown(string(s.host)))
	case s.host != "":
		return draw.Shown(string(s.host))
	case s.user != "":
		return "user " + draw.Shown(string(s.user))
	}
	return ""
}

func (s scope) allows(r *row) bool {
	switch {
	case s.host != "" && r.id.host != s.host:
		return false
	case s.gpu != nil:
		return r.process == nil || r.process.uses(*s.gpu)
	case s.user != "":
		return slices.Contains(usersOf(r), s.user)
	}
	return true
}

func (p *process) uses(index snapshot.DeviceIndex) bool {
	return slices.ContainsFunc(p.gpus, func(g *gpus.GPU) bool { return g.Index == index })
}

// usersOf are the users whom a row is about.
func usersOf(r *row) []snapshot.Username {
	switch {
	case r.user != nil:
		return []snapshot.Username{r.user.Name}
	case r.finding != nil:
		return []snapshot.Username{r.finding.User}
	case r.process != nil:
		return []snapshot.Username{r.process.User}
	case r.event != nil:
		return []snapshot.Username{r.event.User}
	case r.gpu != nil:
		return r.gpu.Users()
	case r.host != nil:
		return r.host.Users()
	}
	return nil
}
