package fleet

import (
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/live"
)

// watchConfig is what the flags of `genv remote watch` say.
type watchConfig struct {
	Config
	interval   time.Duration
	timestamps enforcement.Timestamps
	listeners  listeners.Config
}

func watchFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "interval", Category: command.Site, Aliases: []string{"i"}, Value: "10", Usage: "`TIME` between two looks at the hosts, in seconds or as 500ms"},
		enforcement.TimestampsFlag(),
	}, listeners.Flags()...)
}

func (p *program) readWatchConfig(c *cli.Context) (config watchConfig, err error) {
	if config.interval, err = command.PositiveDuration(c, "interval"); err != nil {
		return config, err
	}
	if config.timestamps, err = enforcement.ReadTimestamps(c); err != nil {
		return config, err
	}
	if config.listeners, err = listeners.ReadConfig(c, p.Getenv, false); err != nil {
		return config, err
	}
	if !config.listeners.Any() {
		return config, command.UsageError("nothing is served: name a socket with --socket PATH, or an address with --web or --metrics")
	}
	if !config.listeners.Asked() {
		config.listeners.Socket.Required = true // there is nothing else to do
	}
	config.Config, err = p.readLoopConfig(c, config.interval)
	return config, err
}

// remoteWatch serves what is there, as `genv remote enforce` does, and enforces nothing:
// its policy has no rules, and it takes no sudo where it is refused.
func (p *program) remoteWatch(c *cli.Context) error {
	config, err := p.readWatchConfig(c)
	if err != nil {
		return err
	}
	f, err := p.open(config.Config)
	if err != nil {
		return err
	}
	defer f.close()
	pool := f.pool()
	defer pool.Close()
	link, feed := f.visible(pool, config.interval), live.NewFeed(live.Options{Now: p.Now})
	setup := func(config watchConfig) enforcement.Setup {
		return enforcement.Setup{
			Config: enforcement.Config{Policy: new(policy.File), Interval: config.interval, Format: "tui", DryRun: true, Timestamps: config.timestamps},
			Fleet:  f.toEnforce(&config.Config, link), Feed: feed, Viewers: listeners.Viewers{Config: config.listeners, Program: &p.Program}, LookOnly: true,
		}
	}
	return enforcement.Run(c.Context, &p.Program, config.SSH.Log, setup(config), func() (enforcement.Setup, error) {
		next, err := p.readWatchConfig(c)
		if err == nil {
			f.reloaded(&next.Config, pool)
		}
		return setup(next), err
	})
}
