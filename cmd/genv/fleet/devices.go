package fleet

import (
	"context"
	"strconv"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// DevicesDocument is the JSON of `genv remote devices`; docs/json.md describes it.
type DevicesDocument struct {
	Schema    string        `json:"schema"`
	Total     int           `json:"total"`     // devices of all hosts that answered
	Available int           `json:"available"` // those to which no environment is attached
	Hosts     []hostDevices `json:"hosts"`
	unanswered
}

type hostDevices struct {
	Host      string           `json:"host"`
	Total     int              `json:"total"`
	Available int              `json:"available"`
	Devices   []deviceDocument `json:"devices"`
}

type deviceDocument struct {
	Index            snapshot.DeviceIndex `json:"index"`
	TotalMemoryBytes *int64               `json:"total_memory_bytes"` // null if it shares that of its machine
	Environments     []snapshot.EnvID     `json:"environments"`       // those that are attached to it
	// Processes are those that use it, with --processes: only a device without any is available then.
	Processes []snapshot.PID `json:"processes,omitzero"`
}

// devicesOptions is what the flags of `genv remote devices` say.
type devicesOptions struct {
	listFlags
	processes bool
}

func devicesCommand(h hostFlags) *cli.Command {
	o := &devicesOptions{listFlags: listFlags{hostFlags: h}}
	return &cli.Command{
		Name:  "devices",
		Usage: "list the GPUs of every host, and how many no environment has",
		Flags: o.tableFlags(allHosts, command.Bool(&o.processes, "processes",
			"ask nvidia-smi too, with sudo: only a GPU that no process uses is available")),
		Action: func(c *cli.Context) error {
			question := (*fleet).devices
			if o.processes {
				question = (*fleet).devicesInUse
			}
			return list(c, &o.hostFlags, question, o.write)
		},
	}
}

// devices asks for the devices by the state files alone: that takes no nvidia-smi.
func (f *fleet) devices(ctx context.Context, h remote.Host) ([]deviceDocument, error) {
	devices, err := f.commands().Devices(ctx, h)
	return deviceDocuments(devices), err
}

// devicesInUse asks for the processes on the devices as well: those of a device
// that was just taken away may not have ended yet, or never will.
func (f *fleet) devicesInUse(ctx context.Context, h remote.Host) ([]deviceDocument, error) {
	s, err := f.commands().Snapshot(ctx, h)
	if err != nil {
		return nil, err
	}
	devices := deviceDocuments(s.Devices)
	for i := range devices {
		devices[i].Processes = []snapshot.PID{}
		for j := range s.Processes {
			if p := &s.Processes[j]; p.Uses(devices[i].Index) != nil {
				devices[i].Processes = append(devices[i].Processes, p.PID)
			}
		}
	}
	return devices, nil
}

func deviceDocuments(devices []snapshot.Device) []deviceDocument {
	list := []deviceDocument{}
	for _, d := range devices {
		device := deviceDocument{
			Index: d.Index, TotalMemoryBytes: environment.Bytes(d.Capacity()), Environments: []snapshot.EnvID{},
		}
		for _, a := range d.Attachments {
			device.Environments = append(device.Environments, a.EID)
		}
		list = append(list, device)
	}
	return list
}

func (o *devicesOptions) write(a answers[[]deviceDocument]) error {
	document := DevicesDocument{Schema: "genv.remote.devices/1", Hosts: []hostDevices{}, unanswered: a.unanswered}
	t := o.output.Table(render.Col("HOST", 25), render.Col("TOTAL", 9), render.Col("AVAILABLE", 0))
	for _, r := range a.of {
		host := hostDevices{Host: r.Host.Name, Total: len(r.Value), Devices: r.Value}
		for _, d := range r.Value {
			if len(d.Environments)+len(d.Processes) == 0 {
				host.Available++
			}
		}
		document.Total += host.Total
		document.Available += host.Available
		document.Hosts = append(document.Hosts, host)
		t.Add(host.Host, strconv.Itoa(host.Total), strconv.Itoa(host.Available))
	}
	return o.print(document, t, len(a.Failed), "Total %d devices with %d available on %d hosts", document.Total,
		document.Available, len(a.of))
}
