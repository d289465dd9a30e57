// Package host has root's commands on a GPU host: `genv usage` for controllers, `genv enforce`, `genv monitor`, `genv
// doctor`, `genv gpus`, the service `genv host`, and `genv guard`; and for container engines a runtime in place of
// runc, and hooks.
package host

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/guard"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

type hostCommands struct{ command.Program }

// Commands returns the commands for root.
func Commands(with command.Program) []*cli.Command {
	p := &hostCommands{with}
	return []*cli.Command{
		guard.Command(with), p.doctorCommand(), p.enforceCommand(), p.gpusCommand(), p.hostCommand(),
		p.monitorCommand(), p.usageCommand(),
	}
}

func (p *hostCommands) openHost() *host {
	here := localhost.Open(p.Program)
	options := enforcelocal.ExecutorOptions{
		Grace: order.DefaultGrace, // well below a controller's command timeout, so the outcome arrives
		UID:   snapshot.UID(os.Geteuid()), Asked: p.askedList(here.Machine.Proc), Proc: here.Machine.Proc,
	}
	if p.SharedAccount != nil {
		options.UID = 0
	}
	if os.Geteuid() == 0 { // root may look up and stop containers
		source := &container.Lookup{
			Engines: container.Engines{}, Run: disk.RunDir(p.Getenv), Proc: here.Machine.Proc, Now: p.Now,
		}
		here.Machine.Containers, options.Containers = source.Look, source
	}
	return &host{
		Host:        here,
		privileged:  options.UID == 0,
		noTerminate: p.Getenv("GENV_TERMINATE_PROCESSES") == "0",
		noMessages:  p.Getenv("GENV_TELL") == "off",
		getenv:      p.Getenv,
		executor:    enforcelocal.New(here.Machine, here.Store, options),
		record: &hostRecord{
			path: localhost.HostLog(p.Getenv), now: p.Now, by: p.Getenv("SUDO_USER"), proc: here.Machine.Proc,
		},
		names: userNames{now: p.Now},
	}
}

// openFence keeps replaced controllers from acting on this host; nil without root, which can't act.
func (p *hostCommands) openFence(h *host) agent.Fence {
	if !h.privileged {
		return nil
	}
	return &fence.LeaseFile{Path: fence.Path(p.Getenv), Now: p.Now}
}

// askedList lists processes that were asked to end; nil without root, because only root may write it.
func (p *hostCommands) askedList(fs proc.FS) *ending.Register {
	boot, err := fs.BootID()
	if err != nil || os.Geteuid() != 0 || p.SharedAccount != nil {
		return nil
	}
	return &ending.Register{Path: ending.Path(p.Getenv), BootID: boot, SinceBoot: proc.SinceBoot}
}
