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

// watchOptions is what the flags of `genv remote watch` say.
type watchOptions struct {
	hostFlags
	interval   time.Duration
	timestamps string
	listen     listeners.Flags
}

func watchCommand(h hostFlags) *cli.Command {
	o := &watchOptions{hostFlags: h, interval: 10 * time.Second}
	return &cli.Command{
		Name:  "watch",
		Usage: "serve the live state of all hosts, as enforce does, without enforcing anything",
		Flags: o.flags(allHosts, append([]cli.Flag{
			command.Duration(&o.interval, "interval,i", "`TIME` between two looks at the hosts, in seconds or as "+
				"500ms").Config(command.Site),
			enforcement.TimestampsFlag(&o.timestamps),
		}, o.listen.Flags()...)...),
		Action: o.run,
	}
}

// read reads which hosts there are, and what is known of the run.
func (o *watchOptions) read(c *cli.Context) (config hostConfig, options enforcement.Options, err error) {
	options = enforcement.Options{
		Policy: new(policy.File), Format: "tui", DryRun: true, LookOnly: true,
		Interval: o.interval, Timestamps: o.timestamps,
	}
	if options.Listen, err = o.listen.Read(c, o.Getenv, false); err != nil {
		return config, options, err
	}
	if !options.Listen.Any() {
		return config, options, command.UsageError("nothing is served: name a socket with --socket PATH, " +
			"or an address with --web or --metrics")
	}
	if !options.Listen.Asked() {
		options.Listen.Socket.Required = true // there is nothing else to do
	}
	config, err = o.readLoopConfig(c, options.Interval)
	return config, options, err
}

// run serves what is there, as `genv remote enforce` does, and enforces nothing:
// its policy has no rules, and it takes no sudo where it is refused.
func (o *watchOptions) run(c *cli.Context) error {
	config, options, err := o.read(c)
	if err != nil {
		return err
	}
	f, err := o.open(config)
	if err != nil {
		return err
	}
	defer f.close()
	pool := f.pool()
	defer pool.Close()
	link := f.visible(pool, options.Interval)
	options.Feed = live.NewFeed(live.Options{Now: o.Now})
	f.reach(&options, &config, link)
	return enforcement.Run(c.Context, &o.Program, config.SSH.Log, options, func() (enforcement.Options, error) {
		config, next, err := o.read(c)
		if err == nil {
			f.reloaded(&config, pool)
		}
		f.reach(&next, &config, link)
		next.Feed = options.Feed
		return next, err
	})
}
