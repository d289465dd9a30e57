package fleet

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// program is genv as its commands see it.
type program struct{ command.Program }

// Config is what the flags of `genv remote` say, with the hosts that they name.
type Config struct {
	Hosts         []remote.Host
	SSH           sshclient.Options
	Fanout        int  // hosts to log in to at a time
	StopAtFailure bool // end at the first host that fails
	Quiet         bool // don't print which hosts failed
}

// The category of the flags that name hosts.
const (
	allHosts   = namedHosts + command.AllHosts // of a command that only looks
	namedHosts = command.OfFleet               // of one that acts on hosts, and only on those that are named
	ownHosts   = command.Site                  // of one for which config.yaml has to name them separately

	ofConnection = command.OfFleet + command.Connection
)

// remoteFlags are taken by `genv remote`, and with others by its commands that work on hosts.
func remoteFlags(hosts string, more ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{
		&cli.StringSliceFlag{Name: "host", Category: hosts, Aliases: []string{"H"}, Usage: "`HOSTS`: a,b or gpu[01-16].lab or 'gpu-*,!gpu-07' or label:gpu=h100 or @group or hosts.yaml; several times"},
		&cli.StringFlag{Name: "hostfile", Category: hosts, Usage: "`FILE` of hosts, one per line or YAML"},
		&cli.StringSliceFlag{Name: "exclude", Category: command.OfFleet, Aliases: []string{"x"}, Usage: "`HOSTS` to leave out, written as with -H"},
		&cli.StringFlag{Name: "username", Category: ofConnection, Aliases: []string{"l"}, Usage: "`USER` to log in as"},
		command.Lasting(&cli.StringFlag{Name: "timeout", Category: ofConnection, Aliases: []string{"t"}, DefaultText: "10, or ssh_config's ConnectTimeout", Usage: "`TIME` for connecting, the handshake included, in seconds or as 500ms"}),
		command.Lasting(&cli.StringFlag{Name: "command-timeout", Category: ofConnection, Value: "30", DefaultText: "30; in a loop of enforce the interval, from 10 to 30", Usage: "`TIME` for a command or an answer of a host, in seconds or as 500ms"}),
		command.AtLeast(1, &cli.IntFlag{Name: "fanout", Category: ofConnection, Hidden: true, Value: 64, Usage: "log in to `N` hosts at a time"}),
		&cli.BoolFlag{Name: "exit-on-error", Category: ofConnection, Aliases: []string{"e"}, Usage: "stop at the first host that fails"},
		&cli.BoolFlag{Name: "quiet", Category: ofConnection, Aliases: []string{"q"}, Usage: "don't print which hosts failed"},
		&cli.StringFlag{Name: "ssh-config", Category: ofConnection, Aliases: []string{"F"}, Usage: "ssh configuration `FILE` instead of ~/.ssh/config"},
		&cli.BoolFlag{Name: "no-sudo", Category: ofConnection, Usage: "run genv on the hosts without sudo, for logins as root; `sudo: false` in hosts.yaml does it for some hosts"},
		command.OneOf(&cli.StringFlag{Name: "ssh", Category: ofConnection, DefaultText: "builtin, or `ssh:` in hosts.yaml", Usage: "`WAY` to reach hosts: builtin, or openssh to run ssh(1), for second factors, GSSAPI and what else genv's own SSH can't do"}, inventory.Ways),
		&cli.BoolFlag{Name: "insecure-ignore-host-keys", Category: command.Connection + command.Asked, Usage: "connect to hosts without checking their keys, in this run"},
		&cli.BoolFlag{Name: "verbose", Category: ofConnection, Aliases: []string{"v"}, Usage: "log more to stderr, such as how each host is reached"},
	}, more...)
}

// readConfig reads remoteFlags, on both levels.
func (p *program) readConfig(c *cli.Context) (Config, error) {
	config := Config{
		Fanout:        command.Given(c, "fanout").Int("fanout"),
		StopAtFailure: command.Bool(c, "exit-on-error"),
		Quiet:         command.Bool(c, "quiet") && !command.Bool(c, "exit-on-error"), // as in 1.4.3: it says why it stops
		SSH: sshclient.Options{
			ConfigFile:       command.String(c, "ssh-config"),
			InsecureHostKeys: command.Bool(c, "insecure-ignore-host-keys"),
			ConnectTimeout:   command.Duration(c, "timeout"), // 0 for ssh_config's ConnectTimeout, or 10 s
			CommandTimeout:   command.Duration(c, "command-timeout"),
			Prompt:           render.Prompt(p.In, p.Err),
			Log:              p.Logger(c),
		},
	}
	selection := inventory.Selection{
		Hosts:        command.AllGiven(c, "host"),
		HostFile:     command.String(c, "hostfile"),
		Exclude:      command.AllGiven(c, "exclude"),
		User:         command.String(c, "username"),
		DefaultFiles: command.ConfigPaths(p.Getenv, command.HostsFile),
		OpenDefault:  command.OpenConfig,
		All:          command.Has(command.FlagOf(c.Command, "host"), command.AllHosts),
	}
	if !selection.All && len(selection.Hosts) == 0 && selection.HostFile == "" {
		return config, p.unnamedHosts(c)
	}
	var err error
	if config.Hosts, err = inventory.Load(selection, command.OpenAtOnce); err != nil {
		return config, err
	}
	if err := setWay(c, config); err != nil {
		return config, err
	}
	if command.Bool(c, "no-sudo") {
		for i := range config.Hosts {
			config.Hosts[i].NoSudo = true
		}
	}
	if c.Command.Category != command.Personal && command.IsPerson(c.Context, p.Getenv) {
		for i := range config.Hosts {
			config.Hosts[i].Personal = true
		}
	}
	return config, nil
}

// setWay applies --ssh to the hosts.
func setWay(c *cli.Context, config Config) error {
	way := command.String(c, "ssh")
	switch {
	case way == "":
		return nil
	case way == inventory.OpenSSH && config.SSH.InsecureHostKeys:
		return command.UsageError("--ssh openssh and --insecure-ignore-host-keys exclude each other: ssh(1) connects to no host with an unknown key")
	}
	for i := range config.Hosts {
		config.Hosts[i].OpenSSH = way == inventory.OpenSSH
	}
	return nil
}

// unnamedHosts says how to name hosts for a command that doesn't take all of the inventory.
func (p *program) unnamedHosts(c *cli.Context) error {
	files := command.ConfigPaths(p.Getenv, command.ConfigFile)
	if len(files) == 0 {
		return command.UsageError("no hosts are selected: %s takes only hosts that are named; write -H a,b or --hostfile FILE", c.Command.HelpName)
	}
	return command.UsageError("no hosts are selected: %s takes only hosts that are named; write -H a,b or -H @all, or `hosts: \"@all\"` under `%s:` in %s",
		c.Command.HelpName, c.Command.Name, strings.Join(files, " or "))
}
