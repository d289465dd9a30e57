package user

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
	"github.com/seed-3119e985/genv/snapshot/state/change"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// deviceQueries are the values of --query. As in 1.4.3, lists have spaces between items, and none within.
var deviceQueries = environment.Queries[snapshot.Device]{
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
	files, err := o.files(c)
	if err != nil {
		return err
	}
	if list != nil {
		var kept []snapshot.Device
		for _, index := range list {
			d := files.Device(index)
			if d == nil {
				return files.NoDevice(index)
			}
			kept = append(kept, *d)
		}
		files.Devices = kept
	}
	if o.Format == "json" {
		return render.WriteJSON(o.Out, localDevicesOf(&files))
	}
	return render.WriteCSV(o.Out, deviceQueries.Rows(o.queries, files.Devices))
}

func nameOf(b *state.Files, eid snapshot.EnvID) string {
	if env := b.Environment(eid); env != nil {
		return env.Config.Name
	}
	return ""
}

// LocalDevices is the JSON of `genv devices`.
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
		device := localDevice{d.Index, environment.Bytes(d.Capacity()), []localAttachment{}}
		for _, a := range d.Attachments {
			device.Attachments = append(device.Attachments,
				localAttachment{a.EID, nameOf(b, a.EID), environment.Bytes(a.GPUMemory), a.Time.ISO()})
		}
		document.Devices = append(document.Devices, device)
	}
	return document
}

type devicesOptions struct {
	*userCommands
	stateOptions
	attach         attachOptions
	eid, gpuMemory string
	quiet          bool
	queries        []string
}

func (p *userCommands) devicesCommand() *cli.Command {
	o := &devicesOptions{userCommands: p}
	eid := command.String(&o.eid, "eid", "`ID` of the environment; by default that of this shell")
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
					deviceQueries.Flag(&o.queries)),
				Action: o.query,
			},
		},
	}
}

func (o *devicesOptions) files(c *cli.Context) (state.Files, error) {
	who := o.person()
	if err := o.clear(c.Context, who, state.Devices); err != nil {
		return state.Files{}, err
	}
	files, err := who.Devices(c.Context, o.noCleanup)
	o.Warn(files.Warnings...)
	return files, err
}

func (o *devicesOptions) list(c *cli.Context) error {
	files, err := o.files(c)
	if err != nil {
		return err
	}
	if o.Format == "json" {
		return render.WriteJSON(o.Out, localDevicesOf(&files))
	}
	t := o.Table("ID:8", "ENV ID:12", "ENV NAME:16", "ATTACHED")
	for _, d := range files.Devices {
		for _, a := range d.Attachments {
			t.Add(d.Index.String(), o.Name(string(a.EID)), o.Name(nameOf(&files, a.EID)), o.Age(a.Time, o.Now()))
		}
		if len(d.Attachments) == 0 {
			t.Add(d.Index.String(), "", "", "")
		}
	}
	return t.Write(o.Out)
}

// attachTo works as in 1.4.3, unlike attach: by default it attaches as many devices as are configured, or none, and
// detaches more. An unregistered environment keeps them until the state files are next cleaned up.
func (o *devicesOptions) attachTo(c *cli.Context) error {
	request, _, err := o.attach.request(c, o.Getenv)
	var config snapshot.EnvConfig
	if err == nil {
		err = environment.SetMemory(&config, o.gpuMemory)
	}
	if err != nil {
		return err
	}
	who := o.person()
	if request.EID, err = who.named(c, o.eid); err != nil {
		return err
	}
	if request.Instances, err = who.instances(c, o.attach.mig, request.EID); err != nil {
		return err
	}
	request.Memory, request.Configured, request.Exact = config.GPUMemory, true, true
	request.Unregistered = request.EID != who.eid && request.Instances == nil
	result, others, err := o.attach.change(c, o.userCommands, who, change.Change{Attach: &request})
	if err != nil {
		return who.ended(request.EID, err)
	}
	o.Warn(others.warnings(without(result.Now, result.Before))...)
	return o.print(result.Now)
}

func (o *devicesOptions) detachFrom(c *cli.Context) error {
	list, err := readIndices(c, o.attach.index)
	if err != nil {
		return err
	}
	who := o.person()
	eid, err := who.named(c, o.eid)
	if err != nil {
		return err
	}
	detach := &change.Detach{EID: eid, Indices: list, Unregistered: eid != who.eid}
	result, err := who.changeIn(c.Context, eid, change.Change{Detach: detach})
	if err != nil || o.quiet {
		return err
	}
	return o.print(result.Now)
}

func (o *devicesOptions) print(devices []snapshot.DeviceIndex) error {
	_, err := fmt.Fprintln(o.Out, text.JoinIndices(devices))
	return err
}

func (o *devicesOptions) find(c *cli.Context) error {
	eid, err := o.person().named(c, o.eid)
	if err != nil {
		return err
	}
	files, err := o.files(c)
	if err != nil {
		return err
	}
	return o.print(files.AttachedTo(eid))
}
