package fleet

import (
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/top"
	"github.com/seed-3119e985/genv/snapshot"
)

// topConfig is what the flags of `genv remote top` say.
type topConfig struct {
	socket   string // to read from; empty if the program looks itself
	interval time.Duration
	plain    bool
	cycles   int
	allow    bool // actions
	filter   top.Filter
}

func topFlags() []cli.Flag {
	return []cli.Flag{
		socketFlag("read from the controller with this `PATH` (or off: look at the hosts)"),
		&cli.StringFlag{Name: "interval", Category: command.Site, Aliases: []string{"i"}, Value: "10", Usage: "without a controller: `TIME` between two looks at the hosts, in seconds or as 500ms"},
		&cli.StringFlag{Name: "filter", Category: command.Site, Usage: "show only what meets `CONDITIONS`, such as 'host~gpu-1 user=bob util<5 state=finding'"},
		&cli.BoolFlag{Name: "plain", Usage: "print lines, for screen readers and logs: a host again when it has changed"},
		&cli.BoolFlag{Name: "once", Usage: "with --plain: print each host once, and end"},
		&cli.IntFlag{Name: "cycles", Usage: "with --plain: end after `N` cycles; 0 never ends"},
		&cli.BoolFlag{Name: "read-only", Usage: "allow no actions; this is the default"},
		&cli.BoolFlag{Name: "allow-actions", Category: command.Asked, Usage: "allow to terminate, warn, detach, exempt and hold, each after a confirmation; for root and the controller's account"},
	}
}

// socketFlag is the flag for findController.
func socketFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "socket", Category: command.Site + command.Top + command.OrOff + command.Unless(socket.Variable), DefaultText: "that of the running controller", Usage: usage + "; $" + socket.Variable}
}

func (p *program) readTopConfig(c *cli.Context) (config topConfig, err error) {
	config = topConfig{cycles: c.Int("cycles"), plain: c.Bool("plain"), allow: c.Bool("allow-actions")}
	if config.interval, err = command.PositiveDuration(c, "interval"); err != nil {
		return config, err
	}
	if config.filter, err = top.ParseFilter(c.String("filter")); err != nil {
		return config, command.UsageError("--filter: %w", err)
	}
	switch {
	case config.allow && c.Bool("read-only"):
		return config, command.UsageError("--allow-actions and --read-only exclude each other")
	case config.cycles < 0:
		return config, command.UsageError("--cycles %d: write 0 or more", config.cycles)
	case !config.plain && (config.cycles > 0 || c.Bool("once")):
		return config, command.UsageError("--once and --cycles need --plain")
	case !config.plain && !render.IsTerminal(p.Out):
		return config, command.UsageError("the output is not a terminal: --plain prints lines")
	}
	if c.Bool("once") {
		config.cycles = 1
	}
	config.socket, err = p.findController(c)
	return config, err
}

// findController returns the socket of the running controller; empty if there is none.
func (p *program) findController(c *cli.Context) (string, error) {
	path, given := c.String("socket"), command.IsGiven(c, "socket")
	switch {
	case given && path == "":
		return "", command.UsageError("--socket: write a path, or off")
	case path == socket.Off:
		return "", nil
	case !given:
		path = socket.Find(p.Getenv, os.Geteuid())
	}
	if path == "" {
		return "", nil
	}
	switch living, err := socket.Answers(c.Context, path); {
	case living:
		return path, nil
	case given && err == nil:
		return "", command.UsageError("--socket %s: no controller listens there; start `genv remote enforce` or `genv remote watch` with this --socket, or look at the hosts: --socket off -H HOSTS", path)
	case err != nil: // a second program that asks all hosts would not be welcome
		return "", command.UsageError("the controller's socket: %w; root, the controller's account and the group %s may use it, and everybody may look at the hosts: --socket off -H HOSTS", err, socket.Group)
	}
	return "", nil
}

func (p *program) remoteTop(c *cli.Context) error {
	config, err := p.readTopConfig(c)
	if err != nil {
		return err
	}
	options := top.Options{
		In: p.In, Out: p.Out, Now: p.Now, Filter: config.filter,
		Colour: render.Colourful(p.Out, p.Getenv), NoAct: "this view is read-only: start it with --allow-actions",
	}
	if options.SSH, options.Hosts, err = p.topHosts(c); err != nil {
		return err
	}
	source, err := p.topSource(c, config)
	if err != nil {
		return err
	}
	defer source.Close()
	options.Source = source
	if config.allow {
		options.Act, options.NoAct = source.act, ""
	}
	if !config.plain {
		return top.Run(c.Context, options)
	}
	if !command.Bool(c, "quiet") {
		options.Failures = func(failures []remote.Failure, total int) { render.WriteFailures(p.Err, failures, total) }
	}
	fleet, err := top.Plain(c.Context, p.Out, options, config.cycles)
	if err != nil || fleet == nil {
		return err
	}
	return command.FleetExit(fleet.Failed, len(fleet.Hosts)-len(fleet.Failed))
}

// topHosts are the arguments of ssh to a host, and the hosts that flags name; nil if no
// flag names any.
func (p *program) topHosts(c *cli.Context) (arguments []string, hosts map[snapshot.Hostname]bool, err error) {
	if file := command.String(c, "ssh-config"); file != "" {
		arguments = append(arguments, "-F", file)
	}
	if user := command.String(c, "username"); user != "" {
		arguments = append(arguments, "-l", user)
	}
	if len(command.AllGiven(c, "host"))+len(command.AllGiven(c, "exclude")) == 0 && command.String(c, "hostfile") == "" {
		return arguments, nil, nil
	}
	config, err := p.readConfig(c)
	hosts = make(map[snapshot.Hostname]bool)
	for _, h := range config.Hosts {
		hosts[snapshot.Hostname(h.Name)] = true
	}
	return arguments, hosts, err
}
