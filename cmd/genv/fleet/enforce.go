package fleet

import (
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
)

func (p *program) remoteEnforceCommand() *cli.Command {
	return &cli.Command{
		Name:   "enforce",
		Usage:  "hold all hosts to the rules, cycle after cycle",
		Flags:  append(remoteFlags(), enforcement.Flags()...),
		Action: p.remoteEnforce,
	}
}

func (p *program) remoteEnforce(c *cli.Context) error {
	format, err := command.FormatOf(c, "tui", "json")
	if err != nil {
		return err
	}
	schedule, err := enforcement.ScheduleOf(c)
	if err != nil {
		return err
	}
	f, err := p.openFleet(c)
	if err != nil {
		return err
	}
	defer f.Close()
	if !command.IsGiven(c, "command-timeout") {
		f.Timeout = patienceFor(schedule.Interval, f.Timeout)
	}
	log := p.Logger(c)
	log.Debug().Stringer("command_timeout", f.Timeout).Stringer("interval", schedule.Interval).Msg("how long a host has for an answer")
	rules, err := enforcement.Begin(&p.Program, c, f.Fleet, "", format)
	if err != nil {
		return err
	}
	defer rules.Close()
	pool := f.connect(log)
	defer pool.Close()
	return rules.Run(c, schedule, func() (*controller.Controller, error) { return p.reload(c, f, pool, rules) })
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

// reload is what SIGHUP asks for: the hosts and the policy as they are now.
func (p *program) reload(c *cli.Context, f *fleet, pool *agent.Pool, rules *enforcement.Enforcement) (*controller.Controller, error) {
	hosts, err := p.hostsOf(c)
	if err != nil {
		return nil, err
	}
	old := f.Hosts
	next, err := rules.Reload(hosts)
	if err != nil {
		return nil, err
	}
	f.client.Forget(pool.Keep(hosts)...)
	next.Fanout = len(hosts)
	log := p.Logger(c).Level(zerolog.InfoLevel)
	log.Info().Int("hosts", len(hosts)).Int("before", len(old)).Msg("SIGHUP: hosts and policy were read again")
	return next, nil
}
