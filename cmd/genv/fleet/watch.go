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
			&cli.StringFlag{Name: "interval", Category: command.Site, Aliases: []string{"i"}, Value: "10", Usage: "`TIME` between two looks at the hosts, in seconds or as 500ms"},
			enforcement.TimestampsFlag(),
		}, listeners.Flags()...)...),
		Action: p.remoteWatch,
	}
}

// readWatch reads the flags of `genv remote watch`: which hosts, and what is known of the setup.
func (p *program) readWatch(c *cli.Context) (config Config, setup enforcement.Setup, err error) {
	setup = enforcement.Setup{Config: enforcement.Config{Policy: new(policy.File), Format: "tui", DryRun: true}, LookOnly: true}
	if setup.Interval, err = command.PositiveDuration(c, "interval"); err != nil {
		return config, setup, err
	}
	if setup.Timestamps, err = enforcement.ReadTimestamps(c); err != nil {
		return config, setup, err
	}
	if setup.Listen, err = listeners.ReadConfig(c, p.Getenv, false); err != nil {
		return config, setup, err
	}
	if !setup.Listen.Any() {
		return config, setup, command.UsageError("nothing is served: name a socket with --socket PATH, or an address with --web or --metrics")
	}
	if !setup.Listen.Asked() {
		setup.Listen.Socket.Required = true // there is nothing else to do
	}
	config, err = p.readLoopConfig(c, setup.Interval)
	return config, setup, err
}

// remoteWatch serves what is there, as `genv remote enforce` does, and enforces nothing:
// its policy has no rules, and it takes no sudo where it is refused.
func (p *program) remoteWatch(c *cli.Context) error {
	config, setup, err := p.readWatch(c)
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
	link := f.visible(pool, setup.Interval)
	setup.Fleet, setup.Feed = f.toEnforce(&config, link), live.NewFeed(live.Options{Now: p.Now})
	return enforcement.Run(c.Context, &p.Program, config.SSH.Log, setup, func() (enforcement.Setup, error) {
		config, next, err := p.readWatch(c)
		if err == nil {
			f.reloaded(&config, pool)
		}
		next.Fleet, next.Feed = f.toEnforce(&config, link), setup.Feed
		return next, err
	})
}
