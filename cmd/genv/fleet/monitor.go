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

func monitorCommand(h hostFlags) *cli.Command {
	o := &monitorOptions{hostFlags: h}
	return &cli.Command{
		Name:   "monitor",
		Usage:  "export metrics of all hosts for Prometheus, and configuration for it and Grafana",
		Flags:  o.flags(allHosts, o.Flags(h.Getenv)...),
		Action: o.run,
	}
}

// monitorOptions is what the flags of `genv remote monitor` say.
type monitorOptions struct {
	hostFlags
	monitoring.ExportConfig
}

func (o *monitorOptions) run(c *cli.Context) error {
	if err := o.Check(); err != nil {
		return err
	}
	config, err := o.readLoopConfig(c, o.Interval)
	if err != nil {
		return err
	}
	f, err := o.open(config)
	if err != nil {
		return err
	}
	defer f.close()
	pool := f.pool()
	defer pool.Close()
	snapshotter := &controller.Snapshotter{Survey: *f.asker()}
	snapshotter.Link = f.visible(pool, o.Interval)
	snapshotter.Fanout = len(config.Hosts)
	return monitoring.Run(c.Context, &o.Program, o.ExportConfig, f.collector(snapshotter),
		config.SSH.CommandTimeout)
}

// collector asks all hosts for their metrics, and prints which are lost or back, with the time. Its error ends the run,
// with -e.
func (f *fleet) collector(snapshotter *controller.Snapshotter) func(context.Context) ([]metrics.Scraped, error) {
	var lost render.HostLog
	out := render.DatedLog(f.Err, f.Now, f.Getenv)
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
		for _, line := range lost.Look(seen.Cluster, f.Now()) {
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
