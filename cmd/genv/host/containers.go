package host

import (
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/container/engine"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// containers is where root learns about the containers of this machine, and has them
// stopped.
func containers(getenv func(string) string, fs proc.FS) *container.Source {
	engines := engine.Engines{}
	return &container.Source{Engines: engines, Stopper: engines, Run: localhost.RunDir(getenv), Proc: fs}
}

// nameStarter adds the name of the user who is proved to have started the container of a
// process, for whom the process counts.
func (h *host) nameStarter(p *snapshot.Process) {
	if p.ContainerInfo == nil || p.UID == nil {
		return
	}
	p.UserUnknown = false // the name of its own uid says nothing about whose it is
	if p.ContainerInfo.UID == nil {
		return
	}
	info := *p.ContainerInfo // the other one is kept for the next snapshot
	info.User, p.UserUnknown = h.names.of(*info.UID)
	p.ContainerInfo = &info
}
