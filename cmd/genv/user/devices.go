package user

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

func (p *program) devicesCommand() *cli.Command {
	eid := eidFlag()
	return &cli.Command{
		Name:   "devices",
		Usage:  "list the devices of this host and who is attached to them",
		Flags:  listFlags(),
		Action: p.devicesPs,
		Subcommands: []*cli.Command{
			{Name: "ps", Usage: "list them", Flags: listFlags(), Action: p.devicesPs},
			{
				Name: "attach", Usage: "attach devices to an environment, and print all that it has",
				Flags:  append(attachFlags(), eid, &cli.StringFlag{Name: "gpu-memory", Usage: "memory `CAPACITY` on each, instead of that of the environment"}),
				Action: p.devicesAttach,
			},
			{
				Name: "detach", Usage: "detach devices from an environment, and print those that it still has",
				Flags:  []cli.Flag{eid, indexFlag("only these: `INDEX`, or several with commas"), quietFlag("don't print the devices")},
				Action: p.devicesDetach,
			},
			{Name: "find", Usage: "print the devices of an environment", Flags: append(fileFlags(), eid), Action: p.devicesFind},
			{
				Name: "query", Usage: "print facts about devices, one per line",
				Flags: append(fileFlags(), command.FormatFlag("tui", "csv", "json"), indexFlag("only these: `INDEX`, or several with commas"),
					command.SomeOf(&cli.StringSliceFlag{Name: "query", Aliases: []string{"queries"}, Usage: "`WHAT` to print, several values allowed: " + strings.Join(deviceQueryNames(), " ")}, deviceQueryNames())),
				Action: p.devicesQuery,
			},
		},
	}
}

func (p *program) devicesPs(c *cli.Context) error {
	output, err := command.ReadOutput(c)
	if err != nil {
		return err
	}
	files, err := p.deviceFiles(c)
	if err != nil {
		return err
	}
	if output.Format == "json" {
		return render.WriteJSON(p.Out, localDevicesOf(&files))
	}
	t := output.Table(render.Col("ID", 8), render.Col("ENV ID", 12), render.Col("ENV NAME", 16), render.Col("ATTACHED", 0))
	for _, d := range files.Devices {
		for _, a := range d.Attachments {
			t.Add(d.Index.String(), output.Name(string(a.EID)), output.Name(nameOf(&files, a.EID)), output.Age(a.Time, p.Now()))
		}
		if len(d.Attachments) == 0 {
			t.Add(d.Index.String(), "", "", "")
		}
	}
	return t.Write(p.Out)
}
