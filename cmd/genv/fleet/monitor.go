package fleet

import (
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/monitoring"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/metrics"
)

// remoteMonitor exports the metrics of all hosts.
func (p *program) remoteMonitor(c *cli.Context) error {
	monitor, err := monitoring.ReadConfig(c)
	if err != nil {
		return err
	}
	config, err := p.readLoopConfig(c, monitor.Interval)
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
	looker := &controller.Looker{Asker: *f.asker()}
	looker.Link = f.visible(pool, monitor.Interval)
	looker.Fanout = len(config.Hosts)
	m := fleetMonitor{fleet: f, looker: looker}
	return monitoring.Run(c.Context, &p.Program, monitor, monitoring.Source{Collect: m.collect, Patience: config.SSH.CommandTimeout})
}

// fleetMonitor collects the metrics of a fleet.
type fleetMonitor struct {
	*fleet
	looker *controller.Looker
	failed string // what was printed last about hosts that failed
}

// collect asks all hosts. Its error ends the run, with -e.
func (m *fleetMonitor) collect(ctx context.Context) ([]metrics.Host, error) {
	seen := m.looker.Look(ctx)
	m.progress.End()
	if ctx.Err() != nil {
		return nil, nil
	}
	failures := render.FailuresIn(seen.Cluster)
	if m.StopAtFailure && len(failures) > 0 {
		return nil, m.conclude(failures, seen.Duplicates)
	}
	m.show(failures, &seen)
	hosts := make([]metrics.Host, 0, len(seen.Cluster.Hosts))
	for _, h := range seen.Cluster.Answered() {
		hosts = append(hosts, metrics.Host{Name: h.Name, Installed: seen.Via[h.Name] != agent.ViaReadOnly, Snapshot: h.Snapshot})
	}
	return hosts, nil
}

// show prints which hosts fail, and why, when that changes.
func (m *fleetMonitor) show(failures []remote.Failure, seen *controller.Look) {
	render.WriteDuplicates(m.program.Err, seen.Duplicates)
	var now strings.Builder
	for _, f := range failures {
		fmt.Fprintln(&now, f.Host, f.Class)
	}
	if m.Quiet || now.String() == m.failed {
		return
	}
	m.failed = now.String()
	render.WriteFailures(m.program.Err, failures, len(seen.Cluster.Hosts))
	if len(failures) == 0 {
		fmt.Fprintln(m.program.Err, "All hosts answer again.")
	}
}
