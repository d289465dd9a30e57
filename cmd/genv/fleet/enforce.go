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
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/agent/fence"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
)

// enforceOptions is what the flags of `genv remote enforce` say.
type enforceOptions struct {
	hostFlags
	loop   enforcement.LoopFlags
	leader enforcement.Leader
	usage  report.UsageFlags
	listen listeners.Flags
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

// read reads which hosts there are, and what is known of the run.
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
	config, err = o.readLoopConfig(c, options.Interval)
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
	within := log.Debug().Stringer("command_timeout", config.SSH.CommandTimeout)
	within.Stringer("interval", options.Interval).Msg("how long a host has for an answer")
	pool := f.pool()
	defer pool.Close()
	if options.Listen.Any() {
		options.Feed = live.NewFeed(live.Options{Now: o.Now})
		pool.DeviceAge = ageForViewers(options.Feed, options.Interval, len(config.Hosts))
	}
	var inForce atomic.Pointer[policy.File]
	inForce.Store(options.Policy)
	pool.Types = true
	pool.MaxAge = func(h remote.Host) time.Duration {
		query := enforce.Query{Host: snapshot.Hostname(h.Name), Labels: h.Labels, At: o.Now()}
		return inForce.Load().Settings(query).MaxAge
	}
	reach := func(o *enforcement.Options, config *hostConfig) {
		f.reach(o, config, pool)
		o.Announce = func(_ string, lease *fence.LeaseRequest) { pool.Lease(lease) }
		o.GiveBack, o.Allow = pool.GiveBack, pool.Allow
	}
	reach(&options, &config)
	return enforcement.Run(c.Context, &o.Program, log, options, func() (enforcement.Options, error) {
		config, next, err := o.read(c)
		if err == nil {
			f.reloaded(&config, pool)
			inForce.Store(next.Policy)
		}
		reach(&next, &config)
		next.Feed, next.OpenUsage = options.Feed, options.OpenUsage
		return next, err
	})
}

// ageForViewers has the devices measured more often than hosts do by themselves for as long
// as somebody looks: the rules don't need that, and each new figure is a snapshot to be
// read. So it is for at most 1,000 hosts a minute, as often as those measure anyway.
func ageForViewers(feed *live.Feed, interval time.Duration, hosts int) func() time.Duration {
	age := max(interval/2, time.Duration(hosts)*time.Minute/1000)
	if age >= time.Minute {
		age = 0 // as the hosts do
	}
	return func() time.Duration {
		if feed.Watched(90 * time.Second) { // viewers that scrape metrics come once a minute
			return age
		}
		return 0
	}
}

// reloaded continues with other hosts.
func (f *fleet) reloaded(next *hostConfig, pool *agent.Pool) {
	f.client.Forget(pool.Keep(next.Hosts)...)
	log := f.SSH.Log.Level(zerolog.InfoLevel)
	log.Info().Int("hosts", len(next.Hosts)).Msg("SIGHUP: hosts and policy were read again")
}

// reach sets which hosts a run is about, and how it reaches them. It asks all at a time: over a connection that is
// open a question costs next to nothing, and the pool bounds the logins. A cycle counts as stuck after the time that
// each host may need, its timeout twice, with as many at a time as are logged in to.
func (f *fleet) reach(o *enforcement.Options, config *hostConfig, link controller.Link) {
	o.Hosts, o.Link, o.Fanout = config.Hosts, link, len(config.Hosts)
	o.StopAtFailure, o.Quiet = config.StopAtFailure, config.Quiet
	rounds := time.Duration(len(config.Hosts)/max(config.Fanout, 1) + 1)
	o.CycleLimit, o.Progress = rounds*2*(config.SSH.CommandTimeout+time.Minute), f.progress
}

// readLoopConfig is readConfig for a command that asks all hosts at an interval.
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

// answerTimeout is how long a host of a loop has for an answer if no flag says it: the interval, but at least 10 s. A
// host that always answers just in time would otherwise slow down every cycle, and so all other hosts. The question to
// a host that takes longer continues in the background, and the host is named.
func answerTimeout(interval, longest time.Duration) time.Duration {
	if interval == 0 {
		return longest
	}
	return min(max(interval, 10*time.Second), longest)
}
