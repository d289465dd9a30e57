// Package fleet has the commands that run on a controller: `genv remote …` and
// `genv policy …`.
package fleet

import (
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/environment"
	"github.com/seed-3119e985/genv/cmd/genv/exempt"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/cmd/genv/leadership"
	"github.com/seed-3119e985/genv/cmd/genv/listeners"
	"github.com/seed-3119e985/genv/cmd/genv/monitoring"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/cmd/genv/report"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// fleet is the hosts of a command, and the connections to them.
type fleet struct {
	Config
	program  *program
	client   *sshclient.Client
	progress *render.Progress
}

// open prepares the connections; none is made yet. close ends those that were.
func (p *program) open(config Config) (*fleet, error) {
	if err := sshclient.EnoughDescriptors(len(config.Hosts)); err != nil {
		return nil, err
	}
	client, err := sshclient.New(config.SSH)
	return &fleet{Config: config, program: p, client: client, progress: render.NewProgress(p.Err)}, err
}

func (f *fleet) close() {
	f.progress.End()
	f.client.Close()
}

// commands asks hosts with one genv command at a time.
func (f *fleet) commands() agent.Commands { return agent.Commands{Network: f.client, Log: f.SSH.Log} }

// pool keeps a connection to each host, for commands that ask in a loop. The caller
// closes it.
func (f *fleet) pool() *agent.Pool {
	return &agent.Pool{
		Start: agent.StartWith(f.client.Start), Network: f.client, Timeout: f.SSH.CommandTimeout, Fanout: f.Fanout,
		Log: f.SSH.Log,
	}
}

// asker asks the hosts without enforcing anything.
func (f *fleet) asker() *controller.Asker {
	return &controller.Asker{
		Hosts: f.Hosts, Link: f.commands(), Fanout: f.Fanout, StopAtFailure: f.StopAtFailure, Progress: f.progress.Update,
	}
}

// report prints on stderr which hosts failed, and which names lead to the same machine.
func (f *fleet) report(failures []remote.Failure, duplicates []controller.Duplicate) {
	f.progress.End()
	render.WriteDuplicates(f.program.Err, duplicates)
	if !f.Quiet {
		render.WriteFailures(f.program.Err, failures, len(f.Hosts)-len(duplicates))
	}
}

// exit has the exit code of a command.
func (f *fleet) exit(failures []remote.Failure, duplicates []controller.Duplicate) error {
	return command.FleetExit(failures, len(f.Hosts)-len(duplicates)-len(failures))
}

// conclude ends a command without a table: with the failures, and with the exit code.
func (f *fleet) conclude(failures []remote.Failure, duplicates []controller.Duplicate) error {
	f.report(failures, duplicates)
	return f.exit(failures, duplicates)
}

// listing is what the flags of the commands that print tables say.
type listing struct {
	Config
	output    render.Output
	noSummary bool
}

// alsoFailed is the end of the summary; with -q the summary is that of 1.4.3.
func (l *listing) alsoFailed(hosts int) string {
	if l.Quiet {
		return ""
	}
	return render.AlsoFailed(hosts)
}

func listFlags() []cli.Flag {
	return append(command.OutputFlags(), &cli.BoolFlag{Name: "no-summary", Category: command.Output, Usage: "leave out the summary"})
}

func (p *program) readListing(c *cli.Context) (listing, error) {
	output, err := command.ReadOutput(c)
	if err != nil {
		return listing{}, err
	}
	config, err := p.readConfig(c)
	return listing{Config: config, output: output, noSummary: c.Bool("no-summary")}, err
}

// list asks all hosts a question, keeps one answer for each machine, and prints the
// answers with write.
func list[T any](p *program, c *cli.Context, question func(*fleet, context.Context, remote.Host) (T, error),
	write func(listing, []remote.Result[T], []controller.Duplicate) error,
) error {
	flags, err := p.readListing(c)
	if err != nil {
		return err
	}
	f, err := p.open(flags.Config)
	if err != nil {
		return err
	}
	defer f.close()
	asker := f.asker()
	results := controller.Ask(c.Context, asker, func(ctx context.Context, h remote.Host) (T, error) { return question(f, ctx, h) })
	results, duplicates := controller.Distinct(asker, results)
	failures := render.FailuresOf(results)
	f.report(failures, duplicates)                                                                  // first, so that the table is what remains on the screen
	if stopped := f.StopAtFailure && len(failures) > 0; !stopped || flags.output.Format == "json" { // which names the failures
		if err := write(flags, results, duplicates); err != nil {
			return err
		}
	}
	return f.exit(failures, duplicates)
}

// Commands are what administrators run on a controller. If another command is named, `genv
// remote` is without its many subcommands.
func Commands(with command.Program, named string) []*cli.Command {
	p := &program{with}
	onHosts := &cli.Command{Name: "remote", Usage: "work on many hosts over SSH", Flags: remoteFlags()}
	if named == "" || named == onHosts.Name {
		onHosts.Subcommands = OnHosts(with)
	}
	return []*cli.Command{p.policyCommand(), onHosts}
}

// OnHosts are the commands below `genv remote`; config.yaml sets their flags.
func OnHosts(with command.Program) []*cli.Command {
	p := &program{with}
	return []*cli.Command{
		{
			Name:  "activate",
			Usage: "open a shell with an environment on a host that has the devices for it",
			Flags: append(append(remoteFlags(), environment.SettingFlags()...),
				&cli.BoolFlag{Name: "no-prompt", Usage: "leave the shell's prompt as it is"},
				&cli.BoolFlag{Name: "no-attach", Usage: "attach no devices yet"},
				environment.OverSubscribeFlag()),
			Action: p.remoteActivate,
		},
		p.doctorCommand(),
		{
			Name:   "enforce",
			Usage:  "enforce the rules on all hosts, in a loop",
			Flags:  slices.Concat(remoteFlags(), enforcement.Flags(), report.HistoryFlags(), leadership.Flags(), []cli.Flag{takeOverFlag()}, listeners.Flags()),
			Action: p.remoteEnforce,
		},
		p.llmCommand(),
		{
			Name:        "history",
			Usage:       "print what was done to users, when and why, from the log of `enforce --audit-log`; or all of the decision with this ID",
			ArgsUsage:   "[ID]",
			Flags:       history.ControllerFlags(),
			Action:      func(c *cli.Context) error { return history.ShowController(&p.Program, c) },
			Subcommands: []*cli.Command{report.ForgetCommand(p.Program)},
		},
		{
			Name:  "devices",
			Usage: "list the devices of every host, and how many are available",
			Flags: append(append(remoteFlags(), listFlags()...),
				&cli.BoolFlag{Name: "processes", Usage: "ask nvidia-smi too, with sudo: only a device that no process uses is available"}),
			Action: p.remoteDevices,
		},
		{
			Name:  "envs",
			Usage: "list the environments of every host",
			Flags: append(append(remoteFlags(), listFlags()...),
				command.TimestampFlag()),
			Action: p.remoteEnvs,
		},
		p.gpusCommand(),
		p.installCommand(),
		p.hostsCommand(),
		{
			Name:   "monitor",
			Usage:  "export metrics of all hosts for Prometheus, and configuration for it and Grafana",
			Flags:  append(remoteFlags(), monitoring.Flags(p.Getenv)...),
			Action: p.remoteMonitor,
		},
		{
			Name:  "query",
			Usage: "print facts about environments, one per line",
			Flags: append(remoteFlags(),
				&cli.StringFlag{Name: "name", Usage: "only environments of this `NAME`"},
				command.SomeOf(&cli.StringSliceFlag{Name: "query", Aliases: []string{"queries"}, Usage: "`WHAT` to print, several values allowed: " + strings.Join(environment.QueryNames(), " ")}, environment.QueryNames()),
				command.FormatFlag("tui", "csv", "json")),
			Action: p.remoteQuery,
		},
		exempt.Command(p.Program),
		report.Command(p.Program),
		p.waitCommand(),
		{
			Name:   "top",
			Usage:  "watch hosts, GPUs, users and findings live on the terminal",
			Flags:  append(remoteFlags(), topFlags()...),
			Action: p.remoteTop,
		},
		{
			Name:   "watch",
			Usage:  "serve the live state of all hosts, as enforce does, without enforcing anything",
			Flags:  append(remoteFlags(), watchFlags()...),
			Action: p.remoteWatch,
		},
	}
}

func (p *program) policyCommand() *cli.Command {
	return &cli.Command{
		Name:  "policy",
		Usage: "check and explain policy files",
		Subcommands: []*cli.Command{
			p.policyCheckCommand(),
			{
				Name: "explain", Usage: "print the settings for a user on a host, and where each comes from",
				Flags: append(append(inventoryFlags(), enforcement.RuleFlags()...), command.FormatFlag("tui", "csv", "json"),
					&cli.StringFlag{Name: "user", Usage: "the settings for this `USER`; without it, those for users that the policy doesn't name"},
					&cli.StringFlag{Name: "host", Usage: "on this `HOST`, by its name in the inventory"},
					&cli.StringSliceFlag{Name: "label", Usage: "a label of the host: `KEY=VALUE`, over those of the inventory; may be repeated"},
					&cli.StringFlag{Name: "at", Usage: "at this `TIME`, such as 2026-11-20T22:00; now by default"},
				),
				Action: p.policyExplain,
			},
		},
	}
}
