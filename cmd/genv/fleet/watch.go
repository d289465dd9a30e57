package fleet

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/cmd/genv/monitoring"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
)

type watchOptions struct {
	hostFlags
	interval   time.Duration
	timestamps string
	listen     listeners.Flags
}

func watchCommand(h hostFlags) *cli.Command {
	o := &watchOptions{hostFlags: h, interval: 10 * time.Second}
	return &cli.Command{
		Name:  "watch",
		Usage: "serve the live state of all hosts, as enforce does, without enforcing anything",
		Flags: o.flags(allHosts, append([]cli.Flag{
			command.Duration(&o.interval, "interval,i", "`TIME` between two looks at the hosts, in seconds or as "+
				"500ms").Config(command.Site),
			enforcement.TimestampsFlag(&o.timestamps),
		}, o.listen.Flags()...)...),
		Action: o.run,
	}
}

func (o *watchOptions) read(c *cli.Context) (config hostConfig, options enforcement.Options, err error) {
	options = enforcement.Options{
		Policy: new(policy.File), Format: "tui", DryRun: true, LookOnly: true,
		Interval: o.interval, Timestamps: o.timestamps,
	}
	if options.Listen, err = o.listen.Read(c, o.Getenv, false); err != nil {
		return config, options, err
	}
	if !options.Listen.Any() {
		return config, options, command.UsageError("nothing is served: name a socket with --socket PATH, " +
			"or an address with --web or --metrics")
	}
	if !options.Listen.Asked() {
		options.Listen.Socket.Required = true // it does nothing else
	}
	config, err = o.readLoopConfig(c, options.Interval)
	config.reach(&options)
	return config, options, err
}

func (o *watchOptions) run(c *cli.Context) error {
	config, options, err := o.read(c)
	if err != nil {
		return err
	}
	f, err := o.open(config)
	if err != nil {
		return err
	}
	defer f.close()
	options.Link, options.Feed = f.visible(options.Interval), live.NewFeed(live.Options{Now: o.Now})
	return f.enforce(c, options, o.read)
}

// recent keeps findings about hosts, by name, for a while. It is safe for concurrent use.
type recent[V any] struct {
	now   func() time.Time
	lasts time.Duration

	mu    sync.Mutex
	value map[string]V
	since map[string]time.Time
}

func newRecent[V any](now func() time.Time, lasts time.Duration) *recent[V] {
	return &recent[V]{now: now, lasts: lasts, value: make(map[string]V), since: make(map[string]time.Time)}
}

// of returns a finding; ok is false if there is none, or it expired.
func (r *recent[V]) of(host remote.Host) (value V, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, found := r.since[host.Name]
	return r.value[host.Name], found && r.now().Sub(at) < r.lasts
}

// note keeps a finding; isNew restarts its time.
func (r *recent[V]) note(host remote.Host, value V, isNew bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.value[host.Name] = value; isNew {
		r.since[host.Name] = r.now()
	}
}

// visibleLink asks without sudo if sudo refuses genv. It is for commands that only read.
type visibleLink struct {
	*agent.Pool
	commands agent.Commands
	refused  *recent[agent.Via] // hosts where sudo refuses, and how they are asked instead
}

// visible asks hosts at an interval, and measures devices for each answer. Call it before the pool is used.
func (f *fleet) visible(interval time.Duration) *visibleLink {
	f.pool.Measure, f.pool.DeviceAge = true, func() time.Duration { return interval / 2 }
	// Hosts log, and may mail, each refusal of sudo: try again only after an hour.
	return &visibleLink{f.pool, f.commands(), newRecent[agent.Via](f.Now, time.Hour)}
}

// Snapshot implements controller.Link.
func (l *visibleLink) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	_, refused := l.refused.of(host)
	if !refused {
		s, err := l.Pool.Snapshot(ctx, host)
		if class := remote.ClassOf(err); err == nil || class != remote.Sudo && class != remote.SudoRefused {
			return s, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	s, via, err := l.commands.Visible(ctx, host)
	l.refused.note(host, via, !refused)
	return s, err
}

// About implements controller.Link.
func (l *visibleLink) About(host remote.Host) agent.About {
	about := l.Pool.About(host)
	if via, refused := l.refused.of(host); refused {
		about.Via = via
	}
	return about
}

// waitLink asks hosts without sudo, for `genv remote wait`. It repeats a refused login after 10 minutes only: otherwise
// sshd may lock out this machine's address, and so all its users.
type waitLink struct {
	agent.Commands
	refused *recent[error] // errors that need a person to mend them
}

// Snapshot implements controller.Link.
func (l *waitLink) Snapshot(ctx context.Context, host remote.Host) (*snapshot.Snapshot, error) {
	if cause, refused := l.refused.of(host); refused {
		return nil, cause
	}
	s, _, err := l.Visible(ctx, host)
	switch remote.ClassOf(err) {
	case remote.Auth, remote.OpenSSH, remote.HostKey, remote.HostKeyChanged, remote.Configuration:
		l.refused.note(host, err, true)
	}
	return s, err
}

func monitorCommand(h hostFlags) *cli.Command {
	o := &monitorOptions{hostFlags: h}
	return &cli.Command{
		Name:   "monitor",
		Usage:  "export metrics of all hosts for Prometheus, and configuration for it and Grafana",
		Flags:  o.flags(allHosts, o.Flags(h.Getenv)...),
		Action: o.run,
	}
}

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
	snapshotter := &controller.Snapshotter{Survey: *f.asker()}
	snapshotter.Link, snapshotter.Fanout = f.visible(o.Interval), len(config.Hosts)
	return monitoring.Run(c.Context, &o.Program, o.ExportConfig, f.collector(snapshotter), config.SSH.CommandTimeout)
}

// collector asks all hosts for metrics, and prints lost and returned hosts. Its error, with -e, ends the run.
func (f *fleet) collector(snapshotter *controller.Snapshotter) func(context.Context) ([]metrics.Scraped, error) {
	var lost render.HostLog
	out := render.DatedLog(f.Err, f.Now, f.Getenv)
	return func(ctx context.Context) ([]metrics.Scraped, error) {
		seen := snapshotter.Look(ctx)
		f.progress.End()
		if ctx.Err() != nil {
			return nil, nil
		}
		if failures := render.FailuresIn(seen.Cluster); f.StopAtFailure && len(failures) > 0 {
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
