package fleet

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/gpulist"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// gpusOptions is what the flags of `genv remote gpus` say.
type gpusOptions struct {
	hostFlags
	gpulist.Flags
}

func gpusCommand(h hostFlags) *cli.Command {
	o := &gpusOptions{hostFlags: h}
	return &cli.Command{
		Name:  "gpus",
		Usage: "list the GPUs of every host: which are free, and who uses the others",
		Flags: o.flags(allHosts, o.Flags.Flags()...),
		Action: func(c *cli.Context) error {
			o.Complete(&o.Program)
			return list(c, &o.hostFlags, (*fleet).gpus, o.write)
		},
	}
}

func (f *fleet) gpus(ctx context.Context, h remote.Host) (live.HostGPUs, error) {
	s, via, err := f.commands().Visible(ctx, h)
	if err != nil {
		return live.HostGPUs{}, err
	}
	reservations, _ := live.BookingsOf(s, time.Now())
	return live.HostGPUs{
		Host: snapshot.Hostname(h.Name), Via: via, GPUs: gpus.Of(s), Warnings: s.Warnings, Reservations: reservations,
		Waits: s.Waits,
	}, nil
}

// write counts all GPUs of the models that are asked for, and lists the selected.
func (o *gpusOptions) write(a answers[live.HostGPUs]) error {
	hosts := make([]live.HostGPUs, len(a.of))
	found := gpulist.List{Hosts: len(a.of), Failed: len(a.Failed)}
	for i := range a.of {
		host := a.of[i].Value
		found.Add(string(host.Host), host.GPUs, &o.Flags)
		found.AddWaits(host.Waits)
		for _, r := range host.Reservations {
			text := string(host.Host) + ": " + r.String()
			found.Reserved = append(found.Reserved, gpulist.Reserved{From: r.From, Text: text})
		}
		hosts[i], hosts[i].GPUs = host, o.OfModel(host.GPUs)
	}
	if o.Format != "json" {
		return found.Write(o.Out, &o.Flags)
	}
	document := live.ListGPUs(hosts, a.Failed, a.Duplicates)
	for i := range document.Hosts {
		document.Hosts[i].GPUs = o.Of(document.Hosts[i].GPUs)
	}
	return render.WriteJSON(o.Out, document)
}
