package user

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

func (p *program) status(c *cli.Context) error {
	who := p.person()
	eid, err := who.active(c.Context)
	if errors.Is(err, errNotActive) {
		fmt.Fprintln(p.Out, "Environment is not active")
		return nil
	}
	if err != nil {
		return err
	}
	files, err := who.StateFiles(c.Context)
	if err != nil {
		return err
	}
	p.Warn(files.Warnings...)
	env, err := who.mine(&files, eid)
	if err != nil {
		fmt.Fprintln(p.Out, "Environment is not active")
		p.Warn(err.Error())
		return nil
	}
	p.adviseOfIndices(who)
	p.adviseOfFormer(env, files.AttachedTo(eid))
	_, err = fmt.Fprint(p.Out, text.PrintableLines(statusText(env, files.AttachedTo(eid))))
	return err
}

// statusText is 1.4.3's.
func statusText(env *snapshot.Environment, attached []snapshot.DeviceIndex) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Environment is active (%s)\n", render.Name(string(env.EID)))
	if len(attached) == 0 {
		b.WriteString("Detached from GPUs\n")
	} else {
		fmt.Fprintf(&b, "Attached to GPUs at indices %s\n", text.JoinIndices(attached))
	}
	count := ""
	if env.Config.GPUs != nil {
		count = strconv.Itoa(*env.Config.GPUs)
	}
	fmt.Fprintf(&b, "\nConfiguration\n    Name: %s\n    Device count: %s\n    GPU memory capacity: %s\n\n",
		cmp.Or(render.Name(env.Config.Name), "N/A"), cmp.Or(count, "N/A"), cmp.Or(env.Config.GPUMemory.String(), "N/A"))
	return b.String()
}
