package host

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/enforce"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

func (p *program) enforceCommand() *cli.Command {
	return &cli.Command{
		Name:   "enforce",
		Usage:  "hold this machine to the rules, cycle after cycle",
		Flags:  enforcement.Flags(),
		Action: p.enforceHere,
	}
}

// enforceHere is the controller's loop over a single host without a name: this
// machine.
func (p *program) enforceHere(c *cli.Context) error {
	if err := command.RefuseArguments(c); err != nil {
		return err
	}
	format, err := command.FormatOf(c, "tui", "json")
	if err != nil {
		return err
	}
	schedule, err := enforcement.ScheduleOf(c)
	if err != nil {
		return err
	}
	host, err := p.openHost()
	if err != nil {
		return err
	}
	here := &enforcement.Fleet{
		Controller: &controller.Controller{
			Hosts: []remote.Host{{}}, Link: &selfLink{host: host}, Fanout: 1, Now: p.Now,
		},
		Bar: &render.Progress{},
	}
	rules, err := enforcement.Begin(&p.Program, c, here, enforcelocal.Hostname(), format)
	if err != nil {
		return err
	}
	defer rules.Close()
	return rules.Run(c, schedule, func() (*controller.Controller, error) { return rules.Reload(here.Hosts) })
}

// selfLink is the Link to this machine.
type selfLink struct{ host *host }

func (l *selfLink) Snapshot(ctx context.Context, _ remote.Host) (*snapshot.Snapshot, error) {
	s, err := l.host.snapshot(ctx)
	if err != nil {
		return nil, &remote.Error{Class: remote.CommandFailed, Err: err}
	}
	return s, nil
}

func (l *selfLink) Execute(ctx context.Context, _ remote.Host, report enforce.Report) (agent.Execution, error) {
	return l.host.execution(ctx, report), nil
}

func (l *selfLink) Notify(_ context.Context, _ remote.Host, messages []agent.Message) ([]int, error) {
	return l.host.tell(messages)
}

func (l *selfLink) About(remote.Host) agent.About { return agent.About{} }

func (l *selfLink) Identify(context.Context, remote.Host) (agent.Identity, error) {
	return agent.Identity{}, nil
}
