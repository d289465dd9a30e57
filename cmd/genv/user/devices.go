package user

import (
	"errors"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

func (p *program) devicesCommand() *cli.Command {
	eid := &cli.StringFlag{Name: "eid", Usage: "`ID` of the environment; by default that of this shell"}
	return &cli.Command{
		Name:   "devices",
		Usage:  "list the devices of this host and who is attached to them",
		Flags:  listFlags(),
		Action: p.withPlainErrors(p.devicesPs),
		Subcommands: []*cli.Command{
			{Name: "ps", Usage: "list them", Flags: listFlags(), Action: p.withPlainErrors(p.devicesPs)},
			{
				Name: "attach", Usage: "attach devices to an environment, and print all that it has",
				Flags:  append(attachFlags(), eid, &cli.StringFlag{Name: "gpu-memory", Usage: "memory `CAPACITY` on each, instead of that of the environment"}),
				Action: p.withPlainErrors(p.devicesAttach),
			},
			{
				Name: "detach", Usage: "detach devices from an environment, and print those that it still has",
				Flags: []cli.Flag{eid, indexFlag("only these: `INDEX`, or several with commas")}, Action: p.withPlainErrors(p.devicesDetach),
			},
			{Name: "find", Usage: "print the devices of an environment", Flags: append(fileFlags(), eid), Action: p.withPlainErrors(p.devicesFind)},
			{
				Name: "query", Usage: "print facts about devices, one a line",
				Flags: append(fileFlags(), command.FormatFlag("tui", "csv", "json"), indexFlag("only these: `INDEX`, or several with commas"),
					&cli.StringSliceFlag{Name: "query", Usage: "`WHAT` to print, several values allowed: " + strings.Join(deviceQueryNames(), " ")}),
				Action: p.withPlainErrors(p.devicesQuery),
			},
		},
	}
}

// listFlags are those of the commands that list.
func listFlags() []cli.Flag {
	return slices.Concat(command.OutputFlags(), []cli.Flag{command.TimestampFlag()}, fileFlags())
}

// fileFlags are those of the commands that read the state files.
func fileFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "no-cleanup", Usage: "show what has ended too, and change nothing"},
		&cli.BoolFlag{Name: "reset", Usage: "clear the state file first (only root may)"},
	}
}

// errOnlyRootResets protects the other users: the state files are those of all.
var errOnlyRootResets = errors.New("--reset clears the state of all users: only root may, with `sudo genv envs --reset` or `sudo genv devices --reset`")

// deviceFiles are the state files for a command that lists devices.
func (p *program) deviceFiles(c *cli.Context) (state.Files, error) {
	who := p.person()
	if command.Given(c, "reset").Bool("reset") {
		if who.uid != 0 {
			return state.Files{}, errOnlyRootResets
		}
		found, err := who.Machine.ListDevices(c.Context)
		if err != nil {
			return state.Files{}, err
		}
		if err := who.Store.ResetDevices(c.Context, found); err != nil {
			return state.Files{}, err
		}
	}
	files, err := who.Devices(c.Context, command.Given(c, "no-cleanup").Bool("no-cleanup"))
	p.Warn(files.Warnings...)
	return files, err
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

func nameOf(b *state.Files, eid snapshot.EnvID) string {
	if env := b.Environment(eid); env != nil {
		return env.Config.Name
	}
	return ""
}

// LocalDevices is the JSON of `genv devices`; docs/json.md describes it.
type LocalDevices struct {
	Schema  string        `json:"schema"`
	Devices []localDevice `json:"devices"`
}

type localDevice struct {
	Index            snapshot.DeviceIndex `json:"index"`
	TotalMemoryBytes int64                `json:"total_memory_bytes"`
	Attachments      []localAttachment    `json:"attachments"`
}

type localAttachment struct {
	EID            snapshot.EnvID `json:"eid"`
	Name           string         `json:"name"`
	GPUMemoryBytes *int64         `json:"gpu_memory_bytes"`
	Attached       string         `json:"attached"` // this host's wall clock, YYYY-MM-DDTHH:MM:SS
}

func localDevicesOf(b *state.Files) LocalDevices {
	document := LocalDevices{Schema: "genv.devices/1", Devices: []localDevice{}}
	for _, d := range b.Devices {
		device := localDevice{Index: d.Index, TotalMemoryBytes: d.TotalMemory.Bytes(), Attachments: []localAttachment{}}
		for _, a := range d.Attachments {
			device.Attachments = append(device.Attachments, localAttachment{
				EID: a.EID, Name: nameOf(b, a.EID), GPUMemoryBytes: environment.Bytes(a.GPUMemory), Attached: a.Time.ISO(),
			})
		}
		document.Devices = append(document.Devices, device)
	}
	return document
}
