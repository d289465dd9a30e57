package fleet

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/monitoring"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/metrics"
)

func (p *program) monitorCommand() *cli.Command {
	o, monitor := new(hostFlags), new(monitoring.Config)
	return &cli.Command{
		Name:   "monitor",
		Usage:  "export metrics of all hosts for Prometheus, and configuration for it and Grafana",
		Flags:  o.flags(allHosts, monitor.Flags(p.Getenv)...),
		Action: func(c *cli.Context) error { return p.remoteMonitor(c, o, monitor) },
	}
}

func (p *program) remoteMonitor(c *cli.Context, o *hostFlags, monitor *monitoring.Config) error {
	if err := monitor.Check(); err != nil {
		return err
	}
	config, err := p.readLoopConfig(c, o, monitor.Interval)
	if err != nil {
		return err
	}
	f, err := p.open(config)
	if err != nil {
		return err
	}
	defer f.close()
	pool := f.pool()
	defer pool.Close()
	snapshotter := &controller.Snapshotter{Asker: *f.asker()}
	snapshotter.Link = f.visible(pool, monitor.Interval)
	snapshotter.Fanout = len(config.Hosts)
	return monitoring.Run(c.Context, &p.Program, *monitor, f.collector(snapshotter), config.SSH.CommandTimeout)
}

// collector asks all hosts for their metrics, and prints which are lost or back, with the time. Its error ends the run,
// with -e.
func (f *fleet) collector(snapshotter *controller.Snapshotter) func(context.Context) ([]metrics.Scraped, error) {
	var lost render.HostLog
	out := render.DatedLog(f.program.Err, f.program.Now, f.program.Getenv)
	return func(ctx context.Context) ([]metrics.Scraped, error) {
		seen := snapshotter.Look(ctx)
		f.progress.End()
		if ctx.Err() != nil {
			return nil, nil
		}
		failures := render.FailuresIn(seen.Cluster)
		if f.StopAtFailure && len(failures) > 0 {
			return nil, f.conclude(failures, seen.Duplicates)
		}
		render.WriteDuplicates(out, seen.Duplicates)
		for _, line := range lost.Look(seen.Cluster, f.program.Now()) {
			if !f.Quiet {
				fmt.Fprintln(out, line)
			}
		}
		hosts := make([]metrics.Scraped, 0, len(seen.Cluster.Hosts))
		for _, h := range seen.Cluster.Answered() {
			installed := seen.Via[h.Name] != agent.ViaReadOnly
			hosts = append(hosts, metrics.Scraped{Name: h.Name, Installed: installed, Snapshot: h.Snapshot})
		}
		return hosts, nil
	}
}
