package fleet

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot/text"
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

func hostsCommand(h hostFlags) *cli.Command {
	o := &listFlags{hostFlags: h}
	return &cli.Command{
		Name:   "hosts",
		Usage:  "list the hosts that -H selects, and how they would be reached; it connects to none",
		Flags:  o.tableFlags(allHosts),
		Action: o.hosts,
	}
}

// hosts shows a selection before something else uses it.
func (o *listFlags) hosts(c *cli.Context) error {
	config, err := o.readConfig(c)
	if err != nil {
		return err
	}
	document := HostsDocument{Schema: "genv.remote.hosts/1", Hosts: make([]selectedHost, len(config.Hosts))}
	t := o.output.Table(render.Col("HOST", 25), render.Col("ADDRESS", 20), render.Col("PORT", 6),
		render.Col("USER", 10), render.Col("SUDO", 6), render.Col("LABELS", 0))
	for i, h := range config.Hosts {
		document.Hosts[i] = selectedHost{
			Host: h.Name, Address: h.Address, Port: h.Port, User: h.User, Genv: cmp.Or(h.GenvPath, "genv"),
			Sudo: !h.NoSudo, Labels: h.Labels,
		}
		if h.Labels == nil {
			document.Hosts[i].Labels = map[string]string{}
		}
		port := strings.TrimPrefix(strconv.Itoa(h.Port), "0")
		sudo := map[bool]string{true: "no", false: "yes"}[h.NoSudo]
		t.Add(h.Name, h.Address, port, h.User, sudo, labelsText(h.Labels))
	}
	o.noSummary = o.noSummary || o.output.Format == "csv"
	return o.print(document, t, 0, "%s selected; what is empty is left to ssh_config",
		text.Plural(len(config.Hosts), "host"))
}

func labelsText(labels map[string]string) string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return strings.Join(words, " ")
}
