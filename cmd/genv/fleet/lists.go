package fleet

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/gpulist"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// DevicesDocument is the JSON of `genv remote devices`.
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

func (f *fleet) devices(ctx context.Context, h remote.Host) ([]deviceDocument, error) {
	devices, err := f.commands().Devices(ctx, h)
	return deviceDocuments(devices), err
}

// devicesInUse also asks for processes: they may still run on a device that was just detached.
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
	t := o.output.Table("HOST:25", "TOTAL:9", "AVAILABLE")
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

// EnvsDocument is the JSON of `genv remote envs`.
type EnvsDocument struct {
	Schema string             `json:"schema"`
	Total  int                `json:"total"`
	Hosts  []hostEnvironments `json:"hosts"`
	unanswered
}

type hostEnvironments struct {
	Host         string                 `json:"host"`
	Environments []environment.Document `json:"environments"`
}

func envsCommand(h hostFlags) *cli.Command {
	o := &listFlags{hostFlags: h}
	return &cli.Command{
		Name: "envs", Usage: "list the environments of every host",
		Flags:  o.tableFlags(allHosts, command.TimestampFlag(&o.output)),
		Action: func(c *cli.Context) error { return list(c, &o.hostFlags, (*fleet).environments, o.writeEnvs) },
	}
}

func (f *fleet) environments(ctx context.Context, h remote.Host) ([]snapshot.Environment, error) {
	return f.commands().Environments(ctx, h)
}

func envsDocumentOf(a answers[[]snapshot.Environment]) EnvsDocument {
	document := EnvsDocument{Schema: "genv.remote.envs/1", Hosts: []hostEnvironments{}, unanswered: a.unanswered}
	for _, r := range a.of {
		host := hostEnvironments{Host: r.Host.Name, Environments: []environment.Document{}}
		for i := range r.Value {
			host.Environments = append(host.Environments, environment.DocumentOf(&r.Value[i]))
		}
		document.Total += len(r.Value)
		document.Hosts = append(document.Hosts, host)
	}
	return document
}

func (o *listFlags) writeEnvs(a answers[[]snapshot.Environment]) error {
	output, now := o.output, o.Now()
	t := output.Table("HOST:25", "ID:8", "USER:16", "NAME:16", "CREATED")
	for _, r := range a.of {
		for _, e := range r.Value {
			t.Add(r.Host.Name, output.Name(string(e.EID)), output.Name(string(e.Username)), output.Name(e.Config.Name),
				output.Age(e.Creation, now))
		}
	}
	return o.print(envsDocumentOf(a), t, len(a.Failed), "Total %d environments on %d hosts", t.Len(), len(a.of))
}

type queryOptions struct {
	hostFlags
	name, format string
	queries      []string
}

func queryCommand(h hostFlags) *cli.Command {
	o := &queryOptions{hostFlags: h}
	return &cli.Command{
		Name:  "query",
		Usage: "print facts about environments, one per line",
		Flags: o.flags(allHosts,
			command.String(&o.name, "name", "only environments of this `NAME`"),
			environment.QueriesOn("").Flag(&o.queries),
			command.FormatFlag(&o.format, "tui", "csv", "json")),
		Action: func(c *cli.Context) error {
			other := func(e snapshot.Environment) bool { return c.IsSet("name") && e.Config.Name != o.name }
			return list(c, &o.hostFlags, (*fleet).environments, func(a answers[[]snapshot.Environment]) error {
				for i := range a.of {
					a.of[i].Value = slices.DeleteFunc(a.of[i].Value, other)
				}
				return o.write(a)
			})
		},
	}
}

func (o *queryOptions) write(a answers[[]snapshot.Environment]) error {
	if o.format == "json" {
		return render.WriteJSON(o.Out, envsDocumentOf(a))
	}
	var rows [][]string
	for _, r := range a.of {
		rows = append(rows, environment.QueriesOn(r.Host.Name).Rows(o.queries, r.Value)...)
	}
	return render.WriteCSV(o.Out, rows)
}

type gpusOptions struct {
	hostFlags
	gpulist.Flags
}

func gpusCommand(h hostFlags) *cli.Command {
	o := &gpusOptions{hostFlags: h}
	return &cli.Command{
		Name:  "gpus",
		Usage: "list the GPUs of every host: which are free, and who uses the others",
		Flags: o.flags(allHosts, o.Flags.Flags()...),
		Action: func(c *cli.Context) error {
			o.Complete(&o.Program)
			return list(c, &o.hostFlags, (*fleet).gpus, o.write)
		},
	}
}

func (f *fleet) gpus(ctx context.Context, h remote.Host) (live.HostGPUs, error) {
	s, via, err := f.commands().Visible(ctx, h)
	if err != nil {
		return live.HostGPUs{}, err
	}
	reservations, _ := live.ReservationsOf(s, time.Now())
	return live.HostGPUs{
		Host: snapshot.Hostname(h.Name), Via: via, GPUs: gpus.Of(s), Warnings: s.Warnings, Reservations: reservations,
		Waits: s.Waits,
	}, nil
}

// write counts all GPUs of the wanted models, and lists the selected ones.
func (o *gpusOptions) write(a answers[live.HostGPUs]) error {
	hosts := make([]live.HostGPUs, len(a.of))
	found := gpulist.List{Hosts: len(a.of), Failed: len(a.Failed)}
	for i := range a.of {
		host := a.of[i].Value
		found.Add(string(host.Host), host.GPUs, &o.Flags)
		found.AddWaits(host.Waits)
		for _, r := range host.Reservations {
			text := string(host.Host) + ": " + r.String()
			found.Reserved = append(found.Reserved, gpulist.Reserved{From: r.From, Text: text})
		}
		hosts[i], hosts[i].GPUs = host, o.OfModel(host.GPUs)
	}
	if o.Format != "json" {
		return found.Write(o.Out, &o.Flags)
	}
	document := live.ListGPUs(hosts, a.Failed, a.Duplicates)
	for i := range document.Hosts {
		document.Hosts[i].GPUs = o.Of(document.Hosts[i].GPUs)
	}
	return render.WriteJSON(o.Out, document)
}

// HostsDocument is the JSON of `genv remote hosts`.
type HostsDocument struct {
	Schema string         `json:"schema"`
	Hosts  []selectedHost `json:"hosts"`
}

// selectedHost is a host as it was selected; what is left to ssh_config is empty.
type selectedHost struct {
	Host    string            `json:"host"`
	Address string            `json:"address,omitempty"` // missing, as port and user, where ssh_config decides
	Port    int               `json:"port,omitempty"`
	User    string            `json:"user,omitempty"`
	Genv    string            `json:"genv"` // the program there; `genv` is looked up in the path
	Sudo    bool              `json:"sudo"` // commands that need root run with `sudo -n`
	Labels  map[string]string `json:"labels"`
}

func hostsCommand(h hostFlags) *cli.Command {
	o := &listFlags{hostFlags: h}
	return &cli.Command{
		Name: "hosts", Usage: "list the hosts that -H selects, and how they would be reached; it connects to none",
		Flags: o.tableFlags(allHosts), Action: o.hosts,
	}
}

func (o *listFlags) hosts(c *cli.Context) error {
	config, err := o.readConfig(c)
	if err != nil {
		return err
	}
	document := HostsDocument{Schema: "genv.remote.hosts/1", Hosts: make([]selectedHost, len(config.Hosts))}
	t := o.output.Table("HOST:25", "ADDRESS:20", "PORT:6", "USER:10", "SUDO:6", "LABELS")
	for i, h := range config.Hosts {
		document.Hosts[i] = selectedHost{
			Host: h.Name, Address: h.Address, Port: h.Port, User: h.User, Genv: cmp.Or(h.GenvPath, "genv"),
			Sudo: !h.NoSudo, Labels: h.Labels,
		}
		if h.Labels == nil {
			document.Hosts[i].Labels = map[string]string{}
		}
		var labels []string
		for _, key := range slices.Sorted(maps.Keys(h.Labels)) {
			labels = append(labels, key+"="+h.Labels[key])
		}
		port := strings.TrimPrefix(strconv.Itoa(h.Port), "0")
		sudo := map[bool]string{true: "no", false: "yes"}[h.NoSudo]
		t.Add(h.Name, h.Address, port, h.User, sudo, strings.Join(labels, " "))
	}
	o.noSummary = o.noSummary || o.output.Format == "csv"
	return o.print(document, t, 0, "%s selected; what is empty is left to ssh_config",
		text.Plural(len(config.Hosts), "host"))
}
