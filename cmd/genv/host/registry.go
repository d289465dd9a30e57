package host

import (
	"os"

	"github.com/seed-3119e985/genv/enforce/local/asked"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// openFence keeps controllers that were replaced from acting on this host; nil without root,
// which acts for none.
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
	if err != nil || os.Geteuid() != 0 || p.SharedAccount {
		return nil
	}
	return &asked.Register{Path: asked.Path(p.Getenv), BootID: boot, SinceBoot: proc.SinceBoot}
}
