package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/gpulist"
	"github.com/seed-3119e985/genv/cmd/genv/monitoring"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

// GPUsDocument is the JSON of `genv gpus`.
type GPUsDocument struct {
	Schema string     `json:"schema"`
	Total  int        `json:"total"`
	Free   int        `json:"free"`
	GPUs   []gpus.GPU `json:"gpus"`
	// Waits are who waits for GPUs with --wait; missing where no queue is kept.
	Waits []snapshot.Wait `json:"waits,omitzero"`
	// Reservations are those that have not ended.
	Reservations []live.Reservation `json:"reservations,omitempty"`
}

func (p *hostCommands) gpusCommand() *cli.Command {
	o := new(gpulist.Flags)
	return &cli.Command{
		Name: "gpus", Usage: "list the GPUs of this machine: which are free, and who uses the others",
		Flags: o.Flags(), Action: func(c *cli.Context) error { return p.gpusHere(c, o) },
	}
}

func (p *hostCommands) gpusHere(c *cli.Context, o *gpulist.Flags) error {
	o.Complete(&p.Program)
	host := p.openHost()
	all, warnings, err := host.gpus(c.Context)
	if errors.Is(err, nvidiasmi.ErrNotInstalled) {
		if path, _ := command.FindConfig(p.Getenv, command.HostsFile); path != "" {
			return fmt.Errorf("this machine has no NVIDIA driver: `genv remote gpus` lists the GPUs of the hosts in %s",
				path)
		}
	}
	if err != nil {
		return err
	}
	p.Warn(warnings...)
	var found gpulist.List
	found.Add("", all, o)
	waits := service.Waits(disk.RunDir(p.Getenv), host.mayRun)
	found.AddWaits(waits)
	booked, err := host.Store.Reservations()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		p.Warnf("the reservations are unknown: %v", err)
	}
	reservations, _ := live.ReservationsOf(&snapshot.Snapshot{Reservations: booked}, p.Now())
	for i := range reservations {
		r := &reservations[i]
		found.Reserved = append(found.Reserved, gpulist.Reserved{From: r.From, Text: r.String()})
	}
	if o.Format == "json" {
		return render.WriteJSON(p.Out, GPUsDocument{
			Schema: "genv.gpus/1", Total: found.Counts.Total(), Free: found.Counts.Free, GPUs: o.Of(all), Waits: waits,
			Reservations: reservations,
		})
	}
	return found.Write(p.Out, o)
}

func (h *host) gpus(ctx context.Context) (all []gpus.GPU, warnings []string, err error) {
	document, ok, warning := h.rootsView(ctx, "gpus")
	if ok && json.Unmarshal(document, &all) == nil {
		return all, nil, nil
	}
	if warning != "" {
		warnings = append(warnings, warning)
	}
	s, err := h.snapshot(ctx, local.Age{})
	if err != nil {
		return nil, warnings, err
	}
	if h.privileged { // others' warnings would be about unreadable environs
		warnings = append(warnings, s.Warnings...)
		return gpus.Of(s), warnings, nil
	}
	warnings = append(warnings, h.Machine.StateWarnings()...)
	if warning := h.Machine.HiddenWarning(); warning != "" {
		warnings = append(warnings, warning)
	}
	return gpus.Of(s), warnings, nil
}

func (p *hostCommands) monitorCommand() *cli.Command {
	config := new(monitoring.ExportConfig)
	return &cli.Command{
		Name: "monitor", Usage: "export metrics of this machine for Prometheus, and configuration for it and Grafana",
		Flags:  config.Flags(p.Getenv),
		Action: func(c *cli.Context) error { return p.monitorHere(c, config) },
	}
}

func (p *hostCommands) monitorHere(c *cli.Context, config *monitoring.ExportConfig) error {
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
		case err.Error() != failed: // not in each collection
			failed = err.Error()
			p.Warn("no metrics of the GPUs, environments and processes: " + failed)
		}
		return []metrics.Scraped{{Installed: true, Snapshot: s}}, nil
	}
	return monitoring.Run(c.Context, &p.Program, *config, collect, 2*nvidiasmi.DefaultTimeout)
}
