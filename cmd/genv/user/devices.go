package user

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// deviceQueries are the values of `genv devices query --query` and what each prints.
// As in 1.4.3, the items of a list are separated by spaces, and have none.
var deviceQueries = map[string]func(*snapshot.Device) string{
	"index":        func(d *snapshot.Device) string { return d.Index.String() },
	"total_memory": func(d *snapshot.Device) string { return d.TotalMemory.String() },
	"eids": func(d *snapshot.Device) string {
		return eachAttachment(d, func(a *snapshot.Attachment) string { return string(a.EID) })
	},
	"attachments": func(d *snapshot.Device) string {
		return eachAttachment(d, func(a *snapshot.Attachment) string {
			return fmt.Sprintf("%s+%s+%s", a.EID, a.GPUMemory, strings.ReplaceAll(a.Time.String(), " ", "_"))
		})
	},
}

func deviceQueryNames() []string { return slices.Sorted(maps.Keys(deviceQueries)) }

func eachAttachment(d *snapshot.Device, text func(*snapshot.Attachment) string) string {
	words := make([]string, len(d.Attachments))
	for i := range d.Attachments {
		words[i] = text(&d.Attachments[i])
	}
	return strings.Join(words, " ")
}

func (o *devicesOptions) query(c *cli.Context) error {
	list, err := readIndices(c, o.attach.index)
	if err != nil {
		return err
	}
	files, err := o.deviceFiles(c, &o.stateOptions)
	if err != nil {
		return err
	}
	if err := keepDevices(&files, list); err != nil {
		return err
	}
	if o.Format == "json" {
		return render.WriteJSON(o.Out, localDevicesOf(&files))
	}
	rows := make([][]string, len(files.Devices))
	for i := range files.Devices {
		for _, q := range o.queries {
			rows[i] = append(rows[i], deviceQueries[q](&files.Devices[i]))
		}
	}
	return render.WriteCSV(o.Out, rows)
}

// keepDevices removes the devices that are not on a list; nil keeps all.
func keepDevices(b *state.Files, list []snapshot.DeviceIndex) error {
	if list == nil {
		return nil
	}
	var kept []snapshot.Device
	for _, index := range list {
		d := b.Device(index)
		if d == nil {
			return b.NoDevice(index)
		}
		kept = append(kept, *d)
	}
	b.Devices = kept
	return nil
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
	TotalMemoryBytes *int64               `json:"total_memory_bytes"` // null if it shares that of the machine
	Attachments      []localAttachment    `json:"attachments"`
}

type localAttachment struct {
	EID            snapshot.EnvID `json:"eid"`
	Name           string         `json:"name"`             // of the environment; empty for none
	GPUMemoryBytes *int64         `json:"gpu_memory_bytes"` // the capacity that it may use there; null for all
	Attached       string         `json:"attached"`         // this host's wall clock, YYYY-MM-DDTHH:MM:SS
}

func localDevicesOf(b *state.Files) LocalDevices {
	document := LocalDevices{Schema: "genv.devices/1", Devices: []localDevice{}}
	for _, d := range b.Devices {
		device := localDevice{
			Index: d.Index, TotalMemoryBytes: environment.Bytes(d.Capacity()), Attachments: []localAttachment{},
		}
		for _, a := range d.Attachments {
			device.Attachments = append(device.Attachments, localAttachment{
				EID: a.EID, Name: nameOf(b,
					a.EID), GPUMemoryBytes: environment.Bytes(a.GPUMemory), Attached: a.Time.ISO(),
			})
		}
		document.Devices = append(document.Devices, device)
	}
	return document
}

// devicesOptions is what the flags of `genv devices` and of the commands below it say.
type devicesOptions struct {
	*program
	stateOptions
	attach         attachOptions
	eid, gpuMemory string
	quiet          bool
	queries        []string
}

func (p *program) devicesCommand() *cli.Command {
	o := &devicesOptions{program: p}
	eid := eidFlag(&o.eid)
	only := command.String(&o.attach.index, "index", "only these: `INDEX`, or several with commas")
	return &cli.Command{
		Name:  "devices",
		Usage: "list the GPUs of this host and who is attached to them", Flags: o.listFlags(), Action: o.list,
		Subcommands: []*cli.Command{
			{Name: "ps", Usage: "list them", Flags: o.listFlags(), Action: o.list},
			{
				Name: "attach", Usage: "attach GPUs to an environment, and print all that it has",
				Flags: append(o.attach.flags(), eid, command.String(&o.gpuMemory, "gpu-memory",
					"memory `CAPACITY` on each, instead of that of the environment")),
				Action: o.attachTo,
			},
			{
				Name: "detach", Usage: "detach GPUs from an environment, and print those that it still has",
				Flags:  []cli.Flag{eid, only, command.Bool(&o.quiet, "quiet,q", "don't print the GPUs")},
				Action: o.detachFrom,
			},
			{
				Name: "find", Usage: "print the GPUs of an environment", Flags: append(o.fileFlags(), eid),
				Action: o.find,
			},
			{
				Name: "query", Usage: "print facts about GPUs, one per line",
				Flags: append(o.fileFlags(), command.FormatFlag(&o.Format, "tui", "csv", "json"), only,
					command.Strings(&o.queries, "query,queries", "`WHAT` to print, several values allowed: "+
						strings.Join(deviceQueryNames(), " ")).OneOf(deviceQueryNames()...)),
				Action: o.query,
			},
		},
	}
}

func (o *devicesOptions) list(c *cli.Context) error {
	files, err := o.deviceFiles(c, &o.stateOptions)
	if err != nil {
		return err
	}
	if o.Format == "json" {
		return render.WriteJSON(o.Out, localDevicesOf(&files))
	}
	t := o.Table(render.Col("ID", 8), render.Col("ENV ID", 12), render.Col("ENV NAME", 16), render.Col("ATTACHED", 0))
	for _, d := range files.Devices {
		for _, a := range d.Attachments {
			age := o.Age(a.Time, o.Now())
			t.Add(d.Index.String(), o.Name(string(a.EID)), o.Name(nameOf(&files, a.EID)), age)
		}
		if len(d.Attachments) == 0 {
			t.Add(d.Index.String(), "", "", "")
		}
	}
	return t.Write(o.Out)
}
