package host

import (
	"os"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/controllers"
	"github.com/seed-3119e985/genv/remote/agent/fence"
)

// openFence keeps controllers that were replaced from acting on this host; nil without root,
// which acts for none.
func (p *program) openFence(h *host) agent.Fence {
	if !h.privileged {
		return nil
	}
	return fence.File{Path: fence.Path(p.Getenv), Now: p.Now}
}

// openRegistry is the list of the controllers that enforce this host; nil without root,
// since only root's genv enforces it for all, and only root may write the list.
func (p *program) openRegistry(h *host) *controllers.Registry {
	if os.Geteuid() != 0 || p.SharedAccount {
		return nil
	}
	boot, _ := h.Machine.Proc.BootID() // without it, the times since the boot show that it is another one
	return controllers.NewRegistry(controllers.Options{
		Path: controllers.Path(p.Getenv), Login: p.Getenv("SUDO_USER"), BootID: boot, Now: p.Now, SinceBoot: controllers.SinceBoot,
	})
}
