package fleet

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
)

// HostsDocument is the JSON of `genv remote hosts`; docs/json.md describes it.
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

	// With --guard: what the running controller knows.
	Guard   live.HostGuard `json:"guard,omitzero"`
	Service *bool          `json:"service,omitempty"`
	live    *live.Host
}

func (p *program) hostsCommand() *cli.Command {
	return &cli.Command{
		Name:  "hosts",
		Usage: "list the hosts that -H selects, and how they would be reached; it connects to none",
		Flags: remoteFlags(allHosts, append(listFlags(),
			&cli.BoolFlag{Name: "guard", Usage: "also what the running controller knows of the hosts' kernel guards, and whether root owns their state"},
			socketFlag("with --guard: ask the controller with this `PATH`"))...),
		Action: p.remoteHosts,
	}
}

// remoteHosts shows a selection before something else uses it.
func (p *program) remoteHosts(c *cli.Context) error {
	list, err := p.readListing(c)
	if err != nil {
		return err
	}
	document := HostsDocument{Schema: "genv.remote.hosts/1", Hosts: make([]selectedHost, len(list.Hosts))}
	for i, h := range list.Hosts {
		labels := maps.Clone(h.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		document.Hosts[i] = selectedHost{
			Host: h.Name, Address: h.Address, Port: h.Port, User: h.User, Genv: cmp.Or(h.GenvPath, "genv"), Sudo: !h.NoSudo, Labels: labels,
		}
	}
	if c.Bool("guard") {
		if err := p.addGuards(c, document.Hosts); err != nil {
			return err
		}
	}
	if list.output.Format == "json" {
		return render.WriteJSON(p.Out, document)
	}
	return p.writeHosts(list, document.Hosts, c.Bool("guard"))
}

func (p *program) writeHosts(list listing, hosts []selectedHost, guards bool) error {
	labels := 0 // the rest of the line
	if guards {
		labels = 20
	}
	columns := []render.Column{render.Col("HOST", 25), render.Col("ADDRESS", 20), render.Col("PORT", 6), render.Col("USER", 10), render.Col("SUDO", 6), render.Col("LABELS", labels)}
	if guards {
		columns = append(columns, render.Col("SERVICE", 9), render.Col("GUARD", 0))
	}
	t := list.output.Table(columns...)
	for i := range hosts {
		h := &hosts[i]
		port := ""
		if h.Port != 0 {
			port = strconv.Itoa(h.Port)
		}
		cells := []string{h.Host, h.Address, port, h.User, map[bool]string{true: "yes", false: "no"}[h.Sudo], labelsText(h.Labels)}
		if guards {
			cells = append(cells, h.guardCells()...)
		}
		t.Add(cells...)
	}
	if err := t.Write(p.Out); err != nil || list.noSummary || list.output.Format == "csv" {
		return err
	}
	_, err := fmt.Fprintf(p.Out, "\n%s selected; what is empty is left to ssh_config\n", render.Plural(len(hosts), "host"))
	return err
}

func labelsText(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, " ")
}

// controllerTime is how long a controller has to answer.
const controllerTime = 10 * time.Second

// addGuards adds to hosts what the running controller knows of them. Without a controller
// nothing is known, which is said, and no error.
func (p *program) addGuards(c *cli.Context, hosts []selectedHost) error {
	path, err := p.findController(c)
	if err != nil {
		return err
	}
	if path == "" {
		_, err := fmt.Fprintln(p.Err, "No controller is running, so nothing is known about the guards: start `genv remote enforce` or `genv remote watch`.")
		return err
	}
	ctx, cancel := context.WithTimeoutCause(c.Context, controllerTime, remote.ErrLate)
	defer cancel()
	client := live.NewClient(path)
	defer client.Close()
	fleet, err := client.Fleet(ctx)
	if err != nil {
		return fmt.Errorf("ask the controller at %s: %w", path, err)
	}
	known := make(map[snapshot.Hostname]*live.Host, len(fleet.Hosts))
	for i := range fleet.Hosts {
		known[fleet.Hosts[i].Name] = &fleet.Hosts[i]
	}
	for i := range hosts {
		hosts[i].live = known[snapshot.Hostname(hosts[i].Host)]
		if l := hosts[i].live; l != nil {
			hosts[i].Guard, hosts[i].Service = l.Guard, l.Service
		}
	}
	return nil
}

// guardCells are what is known of a host; what isn't is unknown, and not off.
func (h *selectedHost) guardCells() []string {
	const unknown = "unknown"
	switch {
	case h.live == nil:
		return []string{unknown, unknown}
	case h.live.Failure != nil:
		return []string{unknown, fmt.Sprintf("%s: the host failed (%s)", unknown, h.live.Failure.Class)}
	}
	service, guard := h.live.ServiceState(), h.Guard.String()
	if h.Service == nil {
		service = unknown
	}
	switch {
	case guard != "":
	case h.Guard.Mode == "":
		guard = unknown
	default:
		guard = string(h.Guard.Mode)
	}
	return []string{service, guard}
}
