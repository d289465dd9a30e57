package user

import (
	"errors"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

func (p *program) devicesCommand() *cli.Command {
	eid := &cli.StringFlag{Name: "eid", Usage: "`ID` of the environment; the one of this shell unless given"}
	return &cli.Command{
		Name:   "devices",
		Usage:  "list the devices of this host and who is attached to them",
		Flags:  bookFlags(),
		Action: p.plainly(p.devicesPs),
		Subcommands: []*cli.Command{
			{Name: "ps", Usage: "list them", Flags: bookFlags(), Action: p.plainly(p.devicesPs)},
			{
				Name: "attach", Usage: "attach devices to an environment and print all that it has then",
				Flags:  append(attachFlags(), eid, &cli.StringFlag{Name: "gpu-memory", Usage: "`CAPACITY` on each, instead of the environment's"}),
				Action: p.plainly(p.devicesAttach),
			},
			{
				Name: "detach", Usage: "detach devices from an environment and print those that it still has",
				Flags: []cli.Flag{eid, indexFlag("these alone: `INDEX`, or several with commas")}, Action: p.plainly(p.devicesDetach),
			},
			{Name: "find", Usage: "print the devices of an environment", Flags: []cli.Flag{eid}, Action: p.plainly(p.devicesFind)},
			{
				Name: "query", Usage: "print facts about devices, one a line",
				Flags: append(bookFlags(), indexFlag("these alone: `INDEX`, or several with commas"),
					&cli.StringSliceFlag{Name: "query", Usage: "`WHAT` to print, several values allowed: " + strings.Join(deviceQueryNames(), " ")}),
				Action: p.plainly(p.devicesQuery),
			},
		},
	}
}

// bookFlags are those of the commands that list.
func bookFlags() []cli.Flag {
	return []cli.Flag{
		command.FormatFlag(),
		&cli.BoolFlag{Name: "no-header", Usage: "leave out the names of the columns"},
		&cli.BoolFlag{Name: "timestamp", Usage: "print times instead of ages"},
		&cli.BoolFlag{Name: "no-cleanup", Usage: "show what has ended as well, and change nothing"},
		&cli.BoolFlag{Name: "reset", Usage: "start with an empty file (only root may)"},
	}
}

// refuseBookFlags is for commands that list nothing: bookFlags that stand before
// them would be ignored.
func refuseBookFlags(c *cli.Context) error {
	for _, flag := range bookFlags() {
		if command.IsGiven(c, flag.Names()[0]) {
			return command.Usage("--%s goes with the commands that list, not with %s", flag.Names()[0], c.Command.Name)
		}
	}
	return nil
}

// errResetRoot is for --reset: what is in the files belongs to many users.
var errResetRoot = errors.New("--reset takes from all users what they have: only root may, with `sudo genv envs --reset` or `sudo genv devices --reset`")

// deviceBooks are the state files for a command that lists devices.
func (p *program) deviceBooks(c *cli.Context) (state.Files, error) {
	who, err := p.person()
	if err != nil {
		return state.Files{}, err
	}
	if command.Given(c, "reset").Bool("reset") {
		if who.uid != 0 {
			return state.Files{}, errResetRoot
		}
		found, err := who.Machine.ListDevices(c.Context)
		if err != nil {
			return state.Files{}, err
		}
		if err := who.Store.ResetDevices(c.Context, found); err != nil {
			return state.Files{}, err
		}
	}
	books, err := who.Devices(c.Context, command.Given(c, "no-cleanup").Bool("no-cleanup"))
	p.Warn(books.Warnings...)
	return books, err
}

func (p *program) devicesPs(c *cli.Context) error {
	if c.Args().Present() {
		return command.RefuseUnknown(c)
	}
	format, err := command.FormatOf(c, "tui", "csv", "json")
	if err != nil {
		return err
	}
	books, err := p.deviceBooks(c)
	if err != nil {
		return err
	}
	if format == "json" {
		return render.WriteJSON(p.Out, localDevicesOf(&books))
	}
	t := &render.Table{
		Columns:  []render.Column{render.Col("ID", 8), render.Col("ENV ID", 12), render.Col("ENV NAME", 16), render.Col("ATTACHED", 0)},
		NoHeader: command.Given(c, "no-header").Bool("no-header"),
	}
	timestamp := command.Given(c, "timestamp").Bool("timestamp")
	for _, d := range books.Devices {
		for _, a := range d.Attachments {
			t.Add(d.Index.String(), render.ShownName(format, string(a.EID)), render.ShownName(format, nameOf(&books, a.EID)), environment.Creation(a.Time, p.Now(), timestamp))
		}
		if len(d.Attachments) == 0 {
			t.Add(d.Index.String(), "", "", "")
		}
	}
	return t.Write(p.Out, format)
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
			attachment := localAttachment{EID: a.EID, Name: nameOf(b, a.EID), Attached: a.Time.ISO()}
			if a.GPUMemory.Known() {
				bytes := a.GPUMemory.Bytes()
				attachment.GPUMemoryBytes = &bytes
			}
			device.Attachments = append(device.Attachments, attachment)
		}
		document.Devices = append(document.Devices, device)
	}
	return document
}
