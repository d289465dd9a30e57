package main

import (
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
)

func (p *program) remoteEnforceCommand() *cli.Command {
	return &cli.Command{
		Name:   "enforce",
		Usage:  "hold all hosts to the rules, cycle after cycle",
		Flags:  append(remoteFlags(), enforceFlags()...),
		Action: p.remoteEnforce,
	}
}

func (p *program) remoteEnforce(c *cli.Context) error {
	format, err := formatOf(c, "tui", "json")
	if err != nil {
		return err
	}
	schedule, err := scheduleOf(c)
	if err != nil {
		return err
	}
	f, err := p.openFleet(c)
	if err != nil {
		return err
	}
	defer f.Close()
	if !isGiven(c, "command-timeout") {
		f.timeout = patienceFor(schedule.Interval, f.timeout)
	}
	log := p.logger(c)
	log.Debug().Stringer("command_timeout", f.timeout).Stringer("interval", schedule.Interval).Msg("how long a host has for an answer")
	rules, err := p.beginEnforcement(c, f, "")
	if err != nil {
		return err
	}
	defer rules.close()
	talks := f.converse(log)
	defer talks.Close()
	return p.turn(c, f, rules.policy, schedule, format, func() (enforce.Policy, error) { return p.reread(c, f, talks, rules) })
}

// patienceFor is how long a host has for an answer when nobody said: in a loop
// the interval, and 10 s at least. A host that always answers just in time
// would otherwise make every cycle, and so every other host, as slow as itself;
// one that is too slow is asked on behind the cycles, and named.
func patienceFor(interval, longest time.Duration) time.Duration {
	if interval == 0 {
		return longest
	}
	return min(max(interval, 10*time.Second), longest)
}

// reread is what SIGHUP asks for: the hosts and the policy as they stand now.
func (p *program) reread(c *cli.Context, f *fleet, talks *agent.Pool, rules *enforcement) (enforce.Policy, error) {
	hosts, err := p.hostsOf(c)
	if err != nil {
		return nil, err
	}
	policy, err := rules.reread()
	if err != nil {
		return nil, err
	}
	old := f.Hosts
	f.client.Forget(talks.Keep(hosts)...)
	f.Hosts, f.Fanout = hosts, len(hosts)
	log := p.logger(c).Level(zerolog.InfoLevel)
	log.Info().Int("hosts", len(hosts)).Int("before", len(old)).Msg("SIGHUP: hosts and policy were read again")
	return policy, nil
}

// cycleLimit is after how long a cycle counts as stuck: every host may need its
// time twice, as many at a time as are logged in to, and then there are reports
// with a grace for their processes.
func (f *fleet) cycleLimit() time.Duration {
	turns := time.Duration(len(f.Hosts)/max(f.atOnce, 1) + 1)
	return turns*2*(f.timeout+time.Minute) + 2*maxGrace
}

// turn runs the controller's loop and shows each cycle. The exit code is that
// of the last cycle that ran to its end.
func (p *program) turn(c *cli.Context, f *fleet, policy enforce.Policy, s controller.Schedule, format string, reread func() (enforce.Policy, error)) error {
	var last error
	ctx, service, end := startService(c.Context, p.logger(c), &s, f.cycleLimit(), reread)
	defer end()
	shown := &cycleWriter{out: p.out, err: p.err, format: format, quiet: f.quiet}
	err := f.Loop(ctx, policy, s, func(cycle controller.Cycle) error {
		f.bar.end()
		service.tell(cycle)
		if ctx.Err() != nil && len(cycle.Actions) == 0 {
			return nil // cut off before anything was done: it says nothing of the hosts
		}
		last = cycleExit(&cycle, f, given(c, "exit-code").Bool("exit-code"))
		if err := shown.write(cycle); err != nil {
			return err
		}
		if cycle.Stopped {
			return last
		}
		return nil
	})
	if err != nil {
		return err
	}
	return last
}
