package monitoring

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
)

// Source is where the metrics come from.
type Source struct {
	// Collect asks all hosts once and returns those that answered. Its error ends the
	// run. It returns when ctx ends.
	Collect func(ctx context.Context) ([]metrics.Host, error)
	// Patience is how long Collect takes at most if all hosts are slow.
	Patience time.Duration
}

// Run collects and serves the metrics until ctx ends. Its error means that they can't be
// served, or is that of Collect.
func Run(ctx context.Context, p *command.Program, config Config, source Source) error {
	listener, err := socket.ListenTCP(ctx, config.Address, config.Port)
	if err != nil {
		return err
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	if err := publish(config, port, p.Getenv); err != nil {
		return err
	}
	fmt.Fprintf(p.Err, "Metrics: http://%s/metrics, collected every %s. Configuration files: %s\n", config.target(port), config.Interval, config.ConfigDir)

	e := &exporter{now: time.Now, maxAge: 3*config.Interval + source.Patience}
	failed, stop := socket.Serve(listener, e)
	defer stop()
	l := loop{source: source, exporter: e, warn: p.Warn, warned: make(map[snapshot.Hostname][]string)}
	ticker := time.NewTicker(config.Interval)
	defer ticker.Stop()
	for {
		if err := l.collect(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("serve the metrics: %w", err)
		case <-ticker.C:
		}
	}
}

// loop is a run.
type loop struct {
	source   Source
	exporter *exporter
	warn     func(...string)
	warned   map[snapshot.Hostname][]string
}

// collect publishes what the hosts answer now. A collection that was interrupted says
// nothing about the hosts.
func (l *loop) collect(ctx context.Context) error {
	begun := l.exporter.now()
	hosts, err := l.source.Collect(ctx)
	if err != nil || ctx.Err() != nil {
		return err
	}
	l.exporter.publish(metrics.Genv143(hosts), begun)
	for i := range hosts {
		l.warnAbout(&hosts[i])
	}
	return nil
}

// warnAbout says what is missing in a host's metrics, and again only when that changes.
func (l *loop) warnAbout(h *metrics.Host) {
	missing := h.Missing()
	if slices.Equal(l.warned[h.Name], missing) {
		return
	}
	l.warned[h.Name] = missing
	for _, reason := range missing {
		if h.Name != "" {
			reason = string(h.Name) + ": " + reason
		}
		l.warn(reason)
	}
}
