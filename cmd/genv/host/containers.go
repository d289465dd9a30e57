package host

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/seed-3119e985/genv/enforce/local/asked"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

// containers is where root learns about the containers of this machine, and has them stopped.
func containers(getenv func(string) string, fs proc.FS) *container.Lookup {
	engines := container.Engines{}
	return &container.Lookup{Engines: engines, Run: disk.RunDir(getenv), Proc: fs}
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

// recordsEvery is how often root's looks remove the records of containers that have ended.
const recordsEvery = 10 * time.Minute

// pruneRecords removes the records of containers of which no hook was called at the end: on a
// host without root's service only root's looks, and the next container, do that. What is left
// keeps no environment alive, and proves nothing.
func (h *host) pruneRecords() {
	now := h.record.now()
	if age := now.Sub(h.recordsPruned); os.Geteuid() != 0 || age >= 0 && age < recordsEvery {
		return
	}
	h.recordsPruned = now
	_ = container.PruneRecords(disk.RunDir(h.getenv), h.StartOf) // the next look tries again
}

// How often engines are asked whether containers that may be started again still exist, and how long one may take.
const (
	notesEvery  = 10 * time.Minute
	notesWithin = 10 * time.Second
)

// pruneRestarts forgets for whom containers were started that have been removed.
func (h *host) pruneRestarts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, notesWithin)
	defer cancel()
	notes := grant.RestartNotes{Dir: disk.RootDir(h.getenv), Now: h.Machine.Now}
	return notes.Prune(func(note grant.RestartNote) bool {
		if note.Runtime == "" || ctx.Err() != nil { // any engine may have it
			return false
		}
		_, err := container.Engines{}.Inspect(ctx, proc.ContainerCgroup{ID: note.ID, Runtime: note.Runtime})
		return errors.Is(err, container.ErrNotFound) && ctx.Err() == nil
	})
}

// openFence keeps controllers that were replaced from acting on this host; nil without root, which acts for none.
func (p *program) openFence(h *host) agent.Fence {
	if !h.privileged {
		return nil
	}
	return &fence.File{Path: fence.Path(p.Getenv), Now: p.Now}
}

// askedList is the list of the processes of this host that were asked to end; nil without
// root, since only root may write it.
func (p *program) askedList(fs proc.FS) *asked.Register {
	boot, err := fs.BootID()
	if err != nil || os.Geteuid() != 0 || p.SharedAccount != nil {
		return nil
	}
	return &asked.Register{Path: asked.Path(p.Getenv), BootID: boot, SinceBoot: proc.SinceBoot}
}
