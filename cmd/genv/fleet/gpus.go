package fleet

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/gpulist"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// gpusOptions is what the flags of `genv remote gpus` say.
type gpusOptions struct {
	*program
	hostFlags
	gpulist.Flags
}

func (p *program) gpusCommand() *cli.Command {
	o := &gpusOptions{program: p}
	return &cli.Command{
		Name:  "gpus",
		Usage: "list the GPUs of every host: which are free, and who uses the others",
		Flags: o.flags(allHosts, o.Flags.Flags()...),
		Action: func(c *cli.Context) error {
			o.Complete(&p.Program)
			return list(p, c, &o.hostFlags, (*fleet).gpus, o.write)
		},
	}
}

func (o *gpusOptions) write(results []remote.Result[live.HostGPUs], duplicates []controller.Duplicate) error {
	failures := render.FailuresOf(results)
	if o.Format == "json" {
		return render.WriteJSON(o.Out, gpusDocumentOf(results, &o.Selection, failures, duplicates))
	}
	found := gpulist.List{Hosts: len(results) - len(failures), Failed: len(failures)}
	for i := range results {
		found.Add(results[i].Host.Name, results[i].Value.GPUs, &o.Selection)
		for _, r := range results[i].Value.Reservations {
			found.Reserved = append(found.Reserved, gpulist.Reserved{From: r.From, Text: results[i].Host.Name + ": " + r.String()})
		}
	}
	return found.Write(o.Out, &o.Flags)
}

func (f *fleet) gpus(ctx context.Context, h remote.Host) (live.HostGPUs, error) {
	s, via, err := f.commands().Visible(ctx, h)
	if err != nil {
		return live.HostGPUs{}, err
	}
	reservations, _ := live.BookingsOf(s, time.Now())
	return live.HostGPUs{
		Host: snapshot.Hostname(h.Name), Via: via, GPUs: gpus.Of(s), Warnings: s.Warnings, Reservations: reservations,
	}, nil
}

// gpusDocumentOf counts all GPUs of the models that are asked for, and lists the selected.
func gpusDocumentOf(
	results []remote.Result[live.HostGPUs], s *gpulist.Selection, failures []remote.Failure,
	duplicates []controller.Duplicate,
) *live.GPUs {
	var hosts []live.HostGPUs
	for i := range results {
		if host := results[i].Value; results[i].Err == nil {
			host.GPUs = s.OfModel(host.GPUs)
			hosts = append(hosts, host)
		}
	}
	document := live.ListGPUs(hosts, failures, duplicates)
	for i := range document.Hosts {
		document.Hosts[i].GPUs = s.Of(document.Hosts[i].GPUs)
	}
	return document
}
