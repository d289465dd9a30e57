package fleet

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/cmd/genv/report"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/usage/store"
	"github.com/seed-3119e985/genv/snapshot"
)

type enforceOptions struct {
	hostFlags
	loop   enforcement.LoopFlags
	leader enforcement.Leader
	usage  report.UsageFlags
	listen listeners.Flags
	policy atomic.Pointer[policy.File] // the last one that was read
}

func enforceCommand(h hostFlags) *cli.Command {
	o := &enforceOptions{hostFlags: h}
	return &cli.Command{
		Name:  "enforce",
		Usage: "enforce the rules on all hosts, in a loop",
		Flags: slices.Concat(o.flags(namedHosts), o.loop.Flags(), o.usage.Flags(),
			o.leader.Flags(enforcement.LeaderUsage, command.Shared|command.Loop),
			[]cli.Flag{o.loop.TakeOverFlag()}, o.listen.Flags()),
		Action: o.run,
	}
}

func (o *enforceOptions) read(c *cli.Context) (config hostConfig, options enforcement.Options, err error) {
	if options, err = o.loop.Read(c); err != nil {
		return config, options, err
	}
	if options.Listen, err = o.listen.Read(c, o.Getenv, options.Interval == 0); err != nil {
		return config, options, err
	}
	err = o.leader.Read(o.Getenv, options.Interval > 0 && !options.DryRun)
	if options.Leader = o.leader; err != nil {
		return config, options, err
	}
	named := inventory.Selection{Hosts: o.host, HostFile: o.hostFile}
	if err := enforcement.UseHostGroups(options.Policy, named, o.Getenv); err != nil {
		return config, options, err
	}
	if err := options.Policy.CheckHours(options.Leader.Key == "" || store.IsServer(o.usage.URL)); err != nil {
		return config, options, command.UsageError("%w", err)
	}
	config, err = o.readLoopConfig(c, options.Interval)
	config.reach(&options)
	if err == nil {
		o.policy.Store(options.Policy)
	}
	return config, options, err
}

func (o *enforceOptions) run(c *cli.Context) error {
	config, options, err := o.read(c)
	if err != nil {
		return err
	}
	log := config.SSH.Log
	options.Leader.WarnOfClearText(log)
	if err := options.Leader.CheckMembers(c.Context, log); err != nil {
		return err
	}
	f, err := o.open(config)
	if err != nil {
		return err
	}
	defer f.close()
	if options.OpenUsage, err = o.usage.Read(&o.Program, options.Leader.Key, log); err != nil {
		return err
	}
	options.UsageURL, options.UsageFleet = o.usage.URL, o.usage.Fleet()
	within := log.Debug().Stringer("command_timeout", config.SSH.CommandTimeout)
	within.Stringer("interval", options.Interval).Msg("how long a host has for an answer")
	if options.Listen.Any() {
		options.Feed = live.NewFeed(live.Options{Now: o.Now})
		f.pool.DeviceAge = ageForViewers(options.Feed, options.Interval, len(config.Hosts))
	}
	f.pool.Types = true
	f.pool.MaxAge = func(h remote.Host) time.Duration {
		query := enforce.Query{Host: snapshot.Hostname(h.Name), Labels: h.Labels, At: o.Now()}
		return o.policy.Load().Settings(query).MaxAge
	}
	options.Announce = func(_ string, lease *fence.LeaseRequest) { f.pool.Lease(lease) }
	options.Link, options.GiveBack, options.Allow = f.pool, f.pool.GiveBack, f.pool.Allow
	return f.enforce(c, options, o.read)
}

// ageForViewers measures devices more often while somebody looks. Each new value costs a snapshot, so this is for at
// most 1,000 hosts a minute.
func ageForViewers(feed *live.Feed, interval time.Duration, hosts int) func() time.Duration {
	age := max(interval/2, time.Duration(hosts)*time.Minute/1000)
	if age >= time.Minute {
		age = 0 // the hosts' own age
	}
	return func() time.Duration {
		if feed.Watched(90 * time.Second) { // metrics are scraped once a minute
			return age
		}
		return 0
	}
}

func (f *fleet) enforce(
	c *cli.Context, options enforcement.Options,
	read func(*cli.Context) (hostConfig, enforcement.Options, error),
) error {
	options.Progress = f.progress
	return enforcement.Run(c.Context, &f.Program, f.SSH.Log, options, func() (enforcement.Options, error) {
		config, next, err := read(c)
		if err == nil {
			f.client.Forget(f.pool.Keep(config.Hosts)...)
			log := f.SSH.Log.Level(zerolog.InfoLevel)
			log.Info().Int("hosts", len(config.Hosts)).Msg("SIGHUP: hosts and policy were read again")
		}
		return next, err
	})
}

// reach sets the hosts of a run. The run asks all at once, because the pool bounds the logins. A cycle is stuck if it
// takes longer than the hosts may: each twice its timeout, with Fanout at a time.
func (config *hostConfig) reach(o *enforcement.Options) {
	o.Hosts, o.Fanout = config.Hosts, len(config.Hosts)
	o.StopAtFailure, o.Quiet = config.StopAtFailure, config.Quiet
	rounds := time.Duration(len(config.Hosts)/max(config.Fanout, 1) + 1)
	o.CycleLimit = rounds * 2 * (config.SSH.CommandTimeout + time.Minute)
}

func (o *hostFlags) readLoopConfig(c *cli.Context, interval time.Duration) (hostConfig, error) {
	config, err := o.readConfig(c)
	if !c.IsSet("command-timeout") {
		config.SSH.CommandTimeout = answerTimeout(interval, config.SSH.CommandTimeout)
	}
	if interval > 0 {
		config.Patience = config.SSH.CommandTimeout + time.Second // after those of which no connection is made
	}
	return config, err
}

// answerTimeout is the default timeout for a host's answer in a loop: the interval, but at least 10 s. With more, one
// slow host would slow down every cycle. Its question continues in the background.
func answerTimeout(interval, longest time.Duration) time.Duration {
	if interval == 0 {
		return longest
	}
	return min(max(interval, 10*time.Second), longest)
}
