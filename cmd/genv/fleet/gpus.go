package fleet

import (
	"context"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/gpulist"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

func (p *program) gpusCommand() *cli.Command {
	return &cli.Command{
		Name:   "gpus",
		Usage:  "list the GPUs of every host: which are free, and who uses the others",
		Flags:  remoteFlags(allHosts, gpulist.Flags()...),
		Action: p.remoteGPUs,
	}
}

// remoteGPUs lists the GPUs of all hosts, and who uses them.
func (p *program) remoteGPUs(c *cli.Context) error {
	selection, output := gpulist.Read(c), gpulist.ReadOutput(c, &p.Program)
	return list(p, c, (*fleet).gpus, func(_ listing, results []remote.Result[live.HostGPUs], duplicates []controller.Duplicate) error {
		failures := render.FailuresOf(results)
		if output.Format == "json" {
			return render.WriteJSON(p.Out, gpusDocumentOf(results, &selection, failures, duplicates))
		}
		found := gpulist.List{Hosts: len(results) - len(failures), Failed: len(failures)}
		for i := range results {
			found.Add(results[i].Host.Name, results[i].Value.GPUs, &selection)
		}
		return found.Write(p.Out, &selection, &output)
	})
}

// gpus asks a host for its GPUs.
func (f *fleet) gpus(ctx context.Context, h remote.Host) (live.HostGPUs, error) {
	s, via, err := f.commands().Visible(ctx, h)
	if err != nil {
		return live.HostGPUs{}, err
	}
	return live.HostGPUs{Host: snapshot.Hostname(h.Name), Via: via, GPUs: gpus.Of(s), Warnings: s.Warnings}, nil
}

// gpusDocumentOf counts all GPUs of the models that are asked for, and lists the selected.
func gpusDocumentOf(results []remote.Result[live.HostGPUs], s *gpulist.Selection, failures []remote.Failure, duplicates []controller.Duplicate) *live.GPUs {
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
