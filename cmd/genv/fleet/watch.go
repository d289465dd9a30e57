package fleet

import (
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/live"
)

func (p *program) watchCommand() *cli.Command {
	return &cli.Command{
		Name:  "watch",
		Usage: "serve the live state of all hosts, as enforce does, without enforcing anything",
		Flags: remoteFlags(allHosts, append([]cli.Flag{
			command.Lasting(&cli.StringFlag{Name: "interval", Category: command.Site, Aliases: []string{"i"}, Value: "10", Usage: "`TIME` between two looks at the hosts, in seconds or as 500ms"}),
			enforcement.TimestampsFlag(),
		}, listeners.Flags()...)...),
		Action: p.remoteWatch,
	}
}

// readWatch reads the flags of `genv remote watch`: which hosts, and what is known of the run.
func (p *program) readWatch(c *cli.Context) (config Config, options enforcement.Options, err error) {
	options = enforcement.Options{
		Policy: new(policy.File), Format: "tui", DryRun: true, LookOnly: true,
		Interval: command.Duration(c, "interval"), Timestamps: enforcement.Timestamps(c.String("timestamps")),
	}
	if options.Listen, err = listeners.ReadConfig(c, p.Getenv, false); err != nil {
		return config, options, err
	}
	if !options.Listen.Any() {
		return config, options, command.UsageError("nothing is served: name a socket with --socket PATH, or an address with --web or --metrics")
	}
	if !options.Listen.Asked() {
		options.Listen.Socket.Required = true // there is nothing else to do
	}
	config, err = p.readLoopConfig(c, options.Interval)
	return config, options, err
}

// remoteWatch serves what is there, as `genv remote enforce` does, and enforces nothing:
// its policy has no rules, and it takes no sudo where it is refused.
func (p *program) remoteWatch(c *cli.Context) error {
	config, options, err := p.readWatch(c)
	if err != nil {
		return err
	}
	f, err := p.open(config)
	if err != nil {
		return err
	}
	defer f.close()
	pool := f.pool()
	defer pool.Close()
	link := f.visible(pool, options.Interval)
	options.Feed = live.NewFeed(live.Options{Now: p.Now})
	f.reach(&options, &config, link)
	return enforcement.Run(c.Context, &p.Program, config.SSH.Log, options, func() (enforcement.Options, error) {
		config, next, err := p.readWatch(c)
		if err == nil {
			f.reloaded(&config, pool)
		}
		f.reach(&next, &config, link)
		next.Feed = options.Feed
		return next, err
	})
}
