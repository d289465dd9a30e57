package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
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
}

func (p *program) hostsCommand() *cli.Command {
	o := new(listFlags)
	return &cli.Command{
		Name:   "hosts",
		Usage:  "list the hosts that -H selects, and how they would be reached; it connects to none",
		Flags:  o.tableFlags(allHosts),
		Action: func(c *cli.Context) error { return p.remoteHosts(c, o) },
	}
}

// remoteHosts shows a selection before something else uses it.
func (p *program) remoteHosts(c *cli.Context, list *listFlags) error {
	config, err := p.readConfig(c, &list.hostFlags)
	if err != nil {
		return err
	}
	document := HostsDocument{Schema: "genv.remote.hosts/1", Hosts: make([]selectedHost, len(config.Hosts))}
	for i, h := range config.Hosts {
		labels := maps.Clone(h.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		document.Hosts[i] = selectedHost{
			Host: h.Name, Address: h.Address, Port: h.Port, User: h.User, Genv: cmp.Or(h.GenvPath,
				"genv"), Sudo: !h.NoSudo, Labels: labels,
		}
	}
	if list.output.Format == "json" {
		return render.WriteJSON(p.Out, document)
	}
	return p.writeHosts(list, document.Hosts)
}

func (p *program) writeHosts(list *listFlags, hosts []selectedHost) error {
	t := list.output.Table(render.Col("HOST", 25), render.Col("ADDRESS", 20), render.Col("PORT", 6),
		render.Col("USER", 10), render.Col("SUDO", 6), render.Col("LABELS", 0))
	for i := range hosts {
		h := &hosts[i]
		port := ""
		if h.Port != 0 {
			port = strconv.Itoa(h.Port)
		}
		t.Add(h.Host, h.Address, port, h.User, map[bool]string{true: "yes", false: "no"}[h.Sudo], labelsText(h.Labels))
	}
	if err := t.Write(p.Out); err != nil || list.noSummary || list.output.Format == "csv" {
		return err
	}
	_, err := fmt.Fprintf(p.Out, "\n%s selected; what is empty is left to ssh_config\n",
		text.Plural(len(hosts), "host"))
	return err
}

func labelsText(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, " ")
}
