// Package fleet has the commands that run on a controller: `genv remote …` and `genv policy …`.
package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/cmd/genv/operators"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/cmd/genv/report"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

// fleet is the hosts of a command, and the connections to them.
type fleet struct {
	hostConfig
	command.Program
	client   *sshclient.Client
	progress *render.Progress
}

// open prepares the connections; none is made yet. close ends those that were.
func (o *hostFlags) open(config hostConfig) (*fleet, error) {
	if err := sshclient.EnoughDescriptors(len(config.Hosts)); err != nil {
		return nil, err
	}
	client, err := sshclient.New(config.SSH)
	return &fleet{config, o.Program, client, render.NewProgress(o.Err)}, err
}

func (o *hostFlags) openHosts(c *cli.Context) (*fleet, error) {
	config, err := o.readConfig(c)
	if err != nil {
		return nil, err
	}
	return o.open(config)
}

func (f *fleet) close() {
	f.progress.End()
	f.client.Close()
}

// commands asks hosts with one genv command at a time.
func (f *fleet) commands() agent.Commands { return agent.Commands{Network: f.client, Log: f.SSH.Log} }

// pool keeps a connection to each host, for commands that ask in a loop. The caller closes it.
func (f *fleet) pool() *agent.Pool {
	return &agent.Pool{
		Start: agent.StartWith(f.client.Start), Network: f.client, Timeout: f.SSH.CommandTimeout, Fanout: f.Fanout,
		Patience: f.Patience, Log: f.SSH.Log,
	}
}

// asker asks the hosts without enforcing anything.
func (f *fleet) asker() *controller.Survey {
	return &controller.Survey{
		Hosts: f.Hosts, Link: f.commands(), Fanout: f.Fanout, StopAtFailure: f.StopAtFailure,
		Progress: f.progress.Update,
	}
}

// report prints on stderr which hosts failed, and which names lead to the same machine.
func (f *fleet) report(failures []remote.Failure, duplicates []controller.Duplicate) {
	f.progress.End()
	render.WriteDuplicates(f.Err, duplicates)
	if !f.Quiet {
		render.WriteFailures(f.Err, failures, len(f.Hosts)-len(duplicates))
	}
}

func (f *fleet) exit(failures []remote.Failure, duplicates []controller.Duplicate) error {
	return command.FleetExit(failures, len(f.Hosts)-len(duplicates)-len(failures))
}

// conclude ends a command without a table: with the failures, and with the exit code.
func (f *fleet) conclude(failures []remote.Failure, duplicates []controller.Duplicate) error {
	f.report(failures, duplicates)
	return f.exit(failures, duplicates)
}

// listFlags is what the flags of the commands that print tables say.
type listFlags struct {
	hostFlags
	output    render.Output
	noSummary bool
}

func (o *listFlags) tableFlags(unnamed int, more ...cli.Flag) []cli.Flag {
	own := append(command.OutputFlags(&o.output),
		command.Bool(&o.noSummary, "no-summary", "leave out the summary").Config(command.Output))
	return o.flags(unnamed, append(own, more...)...)
}

// print prints a document, or a table with a summary. With -q that is as in 1.4.3, without the hosts that failed.
func (o *listFlags) print(document any, t *render.Table, failed int, summary string, args ...any) error {
	if o.output.Format == "json" {
		return render.WriteJSON(o.Out, document)
	}
	if err := t.Write(o.Out); err != nil || o.noSummary {
		return err
	}
	if o.quiet && !o.exitOnError {
		failed = 0
	}
	_, err := fmt.Fprintf(o.Out, "\n"+summary+render.AlsoFailed(failed)+"\n", args...)
	return err
}

// answers are what the machines of a fleet answered, each once, and the hosts without an answer.
type answers[T any] struct {
	of []remote.Result[T]
	unanswered
}

// unanswered is the part of a document about the hosts of which it says nothing.
type unanswered struct {
	Failed     []remote.Failure       `json:"failed"`
	Duplicates []controller.Duplicate `json:"duplicates"` // names that are left out
}

// list asks all hosts a question, and prints the answers with write.
func list[T any](
	c *cli.Context, o *hostFlags, question func(*fleet, context.Context, remote.Host) (T, error),
	write func(answers[T]) error,
) error {
	f, err := o.openHosts(c)
	if err != nil {
		return err
	}
	defer f.close()
	asker := f.asker()
	results, duplicates := controller.Distinct(asker, controller.Ask(c.Context, asker,
		func(ctx context.Context, h remote.Host) (T, error) { return question(f, ctx, h) }))
	failures := render.FailuresOf(results)
	f.report(failures, duplicates) // first, so that the table is what remains on the screen
	stopped := f.StopAtFailure && len(failures) > 0
	if !stopped || c.String("format") == "json" { // which names the failures
		answered := slices.DeleteFunc(results, func(r remote.Result[T]) bool { return r.Err != nil })
		err = write(answers[T]{answered, unanswered{failures, append([]controller.Duplicate{}, duplicates...)}})
	}
	return cmp.Or(err, f.exit(failures, duplicates))
}

// askMost is the answers of all hosts to a question. It is an error if none answers.
func askMost[T any](
	c *cli.Context, f *fleet, question func(context.Context, remote.Host) (T, error),
) ([]remote.Result[T], error) {
	results := controller.Ask(c.Context, f.asker(), question)
	failures := render.FailuresOf(results)
	if err := f.conclude(failures, nil); len(failures) == len(results) {
		return nil, err
	}
	return slices.DeleteFunc(results, func(r remote.Result[T]) bool { return r.Err != nil }), nil
}

// Commands are what administrators run on a controller. If another command is named, `genv remote` is without its many
// subcommands.
func Commands(with command.Program, named string) []*cli.Command {
	onHosts := &cli.Command{
		Name: "remote", Category: command.Configured, Usage: "work on many hosts over SSH",
		Flags: new(hostFlags).flags(namedHosts), // which are moved behind the command that follows
	}
	if named == "" || named == onHosts.Name {
		onHosts.Subcommands = OnHosts(with)
	}
	return []*cli.Command{policyCommand(with), onHosts}
}

// OnHosts are the commands below `genv remote`; config.yaml sets their flags.
func OnHosts(with command.Program) []*cli.Command {
	h := hostFlags{Program: with}
	return append(operators.Commands(with), activateCommand(h), doctorCommand(h), enforceCommand(h), llmCommand(h),
		historyCommand(with), devicesCommand(h), envsCommand(h), gpusCommand(h), installCommand(h), hostsCommand(h),
		monitorCommand(h), queryCommand(h), report.Command(with), waitCommand(h), topCommand(h), watchCommand(h))
}

func historyCommand(p command.Program) *cli.Command {
	o := new(history.Options)
	return &cli.Command{
		Name: "history", ArgsUsage: "[ID]",
		Usage: "print what was done to users, when and why, from the log of `enforce --audit-log`; or all of the " +
			"decision with this ID",
		Flags:  o.ControllerFlags(),
		Action: func(c *cli.Context) error { return o.ShowController(&p, c) },
	}
}
