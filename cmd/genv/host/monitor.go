package host

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/monitoring"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

func (p *program) monitorCommand() *cli.Command {
	config := new(monitoring.Config)
	return &cli.Command{
		Name: "monitor", Usage: "export metrics of this machine for Prometheus, and configuration for it and Grafana",
		Flags:  config.Flags(p.Getenv),
		Action: func(c *cli.Context) error { return p.monitorHere(c, config) },
	}
}

func (p *program) monitorHere(c *cli.Context, config *monitoring.Config) error {
	if err := config.Check(); err != nil {
		return err
	}
	host := p.openHost()
	failed := ""
	collect := func(ctx context.Context) ([]metrics.Scraped, error) {
		s, err := host.snapshot(ctx, local.Age{})
		switch {
		case ctx.Err() != nil:
			return nil, nil
		case err == nil:
			failed = ""
		case err.Error() != failed: // once, not in each collection
			failed = err.Error()
			p.Warn("no metrics of the GPUs, environments and processes: " + failed)
		}
		return []metrics.Scraped{{Installed: true, Snapshot: s}}, nil
	}
	return monitoring.Run(c.Context, &p.Program, *config, collect, 2*nvidiasmi.DefaultTimeout)
}
