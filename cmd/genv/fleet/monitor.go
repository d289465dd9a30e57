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

// remoteMonitor exports the metrics of all hosts.
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
	m := fleetMonitor{fleet: f, snapshotter: snapshotter}
	source := monitoring.Source{Collect: m.collect, Patience: config.SSH.CommandTimeout}
	return monitoring.Run(c.Context, &p.Program, *monitor, source)
}

// fleetMonitor collects the metrics of a fleet.
type fleetMonitor struct {
	*fleet
	snapshotter *controller.Snapshotter
	hosts       render.HostLog
}

// collect asks all hosts. Its error ends the run, with -e.
func (m *fleetMonitor) collect(ctx context.Context) ([]metrics.Host, error) {
	seen := m.snapshotter.Look(ctx)
	m.progress.End()
	if ctx.Err() != nil {
		return nil, nil
	}
	failures := render.FailuresIn(seen.Cluster)
	if m.StopAtFailure && len(failures) > 0 {
		return nil, m.conclude(failures, seen.Duplicates)
	}
	m.show(&seen)
	hosts := make([]metrics.Host, 0, len(seen.Cluster.Hosts))
	for _, h := range seen.Cluster.Answered() {
		hosts = append(hosts, metrics.Host{
			Name: h.Name, Installed: seen.Via[h.Name] != agent.ViaReadOnly, Snapshot: h.Snapshot,
		})
	}
	return hosts, nil
}

// show prints which hosts are lost or back, with the time.
func (m *fleetMonitor) show(seen *controller.Look) {
	out := render.DatedLog(m.program.Err, m.program.Now, m.program.Getenv)
	render.WriteDuplicates(out, seen.Duplicates)
	for _, line := range m.hosts.Look(seen.Cluster, m.program.Now()) {
		if !m.Quiet {
			fmt.Fprintln(out, line)
		}
	}
}
