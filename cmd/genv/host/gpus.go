package host

import (
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/gpulist"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/local"
)

// GPUsDocument is the JSON of `genv gpus`; docs/json.md describes it.
type GPUsDocument struct {
	Schema string     `json:"schema"`
	Total  int        `json:"total"`
	Free   int        `json:"free"`
	GPUs   []gpus.GPU `json:"gpus"`
}

// gpusHere lists the GPUs of this machine, and who uses them. It takes no root.
func (p *program) gpusHere(c *cli.Context) error {
	selection, err := gpulist.Read(c)
	if err != nil {
		return err
	}
	output, err := gpulist.ReadOutput(c, &p.Program)
	if err != nil {
		return err
	}
	host := p.openHost()
	s, err := host.snapshot(c.Context, 0)
	if err != nil {
		return err
	}
	if host.privileged { // others can't read the environ of most processes, which isn't shown
		p.Warn(s.Warnings...)
	} else if hidden := host.Machine.Hidden(); len(hidden) > 0 {
		p.Warn(local.HiddenWarning(hidden))
	}
	all := gpus.Of(s)
	var found gpulist.List
	found.Add("", all, &selection)
	if output.Format == "json" {
		return render.WriteJSON(p.Out, GPUsDocument{Schema: "genv.gpus/1", Total: found.Total, Free: found.Free, GPUs: selection.Of(all)})
	}
	return found.Write(p.Out, &selection, &output)
}
