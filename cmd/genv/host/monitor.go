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
	return &cli.Command{
		Name: "monitor", Usage: "export metrics of this machine for Prometheus, and configuration for it and Grafana",
		Flags: monitoring.Flags(p.Getenv), Action: p.monitorHere,
	}
}

// monitorHere exports the metrics of this machine.
func (p *program) monitorHere(c *cli.Context) error {
	config, err := monitoring.ReadConfig(c)
	if err != nil {
		return err
	}
	host := p.openHost()
	failed := ""
	return monitoring.Run(c.Context, &p.Program, config, monitoring.Source{Collect: func(ctx context.Context) ([]metrics.Host, error) {
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
		return []metrics.Host{{Installed: true, Snapshot: s}}, nil
	}, Patience: 2 * nvidiasmi.DefaultTimeout})
}
