package host

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	enforcelocal "github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
)

// enforceHere runs the controller's loop over a single host: this machine.
func (p *program) enforceHere(c *cli.Context) error {
	host := p.openHost()
	read := func() (enforcement.Setup, error) {
		config, err := enforcement.ReadConfig(c)
		return enforcement.Setup{Config: config, Fleet: enforcement.Fleet{
			Hosts: []remote.Host{{}}, Link: &localLink{host: host}, Fanout: 1, LocalName: snapshot.Hostname(enforcelocal.Hostname()),
			CycleLimit: 4*time.Minute + 2*agent.MaxGrace, Progress: &render.Progress{},
		}}, err
	}
	setup, err := read()
	if err != nil {
		return err
	}
	return enforcement.Run(c.Context, &p.Program, p.Logger(c), setup, read)
}

// localLink is the controller.Link to this machine.
type localLink struct{ host *host }

func (l *localLink) Snapshot(ctx context.Context, _ remote.Host) (*snapshot.Snapshot, error) {
	s, err := l.host.snapshot(ctx, 0)
	if err != nil {
		return nil, &remote.Error{Class: remote.CommandFailed, Err: err}
	}
	return s, nil
}

func (l *localLink) Execute(ctx context.Context, _ remote.Host, report enforce.Report) (agent.Execution, error) {
	return l.host.execution(ctx, report), nil
}

func (l *localLink) Notify(_ context.Context, _ remote.Host, messages []agent.Message) ([]int, error) {
	return l.host.notify(messages), nil
}

func (l *localLink) About(remote.Host) agent.About { return agent.About{} }

func (l *localLink) Identify(context.Context, remote.Host) (agent.Identity, error) {
	return agent.Identity{}, nil
}
