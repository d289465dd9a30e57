// Package fleet has the commands of a controller: `genv remote …` and `genv policy …`.
package fleet

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/history"
	"github.com/seed-3119e985/genv/cmd/genv/localhost"
	"github.com/seed-3119e985/genv/cmd/genv/operators"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/cmd/genv/report"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/snapshot/text"
)

type fleet struct {
	hostConfig
	command.Program
	client   *sshclient.Client
	pool     *agent.Pool // keeps connections, for commands that ask in a loop
	progress *render.Progress
}

// open makes no connection yet. close closes those that were made.
func (o *hostFlags) open(config hostConfig) (*fleet, error) {
	if err := sshclient.EnoughDescriptors(len(config.Hosts)); err != nil {
		return nil, err
	}
	client := sshclient.New(config.SSH)
	return &fleet{config, o.Program, client, &agent.Pool{
		Start: agent.StartWith(client.Start), Network: client, Timeout: config.SSH.CommandTimeout,
		Fanout: config.Fanout, Patience: config.Patience, Log: config.SSH.Log,
	}, render.NewProgress(o.Err)}, nil
}

func (o *hostFlags) openHosts(c *cli.Context) (*fleet, error) {
	config, err := o.readConfig(c)
	if err != nil {
		return nil, err
	}
	return o.open(config)
}

func (f *fleet) close() {
	f.pool.Close()
	f.progress.End()
	f.client.Close()
}

func (f *fleet) commands() agent.Commands { return agent.Commands{Network: f.client, Log: f.SSH.Log} }

func (f *fleet) asker() *controller.Survey {
	return &controller.Survey{
		Hosts: f.Hosts, Link: f.commands(), Fanout: f.Fanout, StopAtFailure: f.StopAtFailure,
		Progress: f.progress.Update,
	}
}

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

func (f *fleet) conclude(failures []remote.Failure, duplicates []controller.Duplicate) error {
	f.report(failures, duplicates)
	return f.exit(failures, duplicates)
}

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

// print prints a document, or a table with a summary. With -q the summary leaves out failed hosts, as in 1.4.3.
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

type answers[T any] struct {
	of []remote.Result[T]
	unanswered
}

type unanswered struct {
	Failed     []remote.Failure       `json:"failed"`
	Duplicates []controller.Duplicate `json:"duplicates"` // names that are left out
}

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
	f.report(failures, duplicates) // before the table, which stays on the screen
	stopped := f.StopAtFailure && len(failures) > 0
	if !stopped || c.String("format") == "json" { // JSON names the failures
		answered := slices.DeleteFunc(results, func(r remote.Result[T]) bool { return r.Err != nil })
		err = write(answers[T]{answered, unanswered{failures, append([]controller.Duplicate{}, duplicates...)}})
	}
	return cmp.Or(err, f.exit(failures, duplicates))
}

// askMost fails only if no host answers.
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

// Commands are the commands of a controller. If another command is named, `genv remote` gets no subcommands.
func Commands(with command.Program, named string) []*cli.Command {
	onHosts := &cli.Command{
		Name: "remote", Category: command.Configured, Usage: "work on many hosts over SSH",
		Flags: new(hostFlags).flags(namedHosts), // Arrange moves them behind the next command
	}
	if named == "" || named == onHosts.Name {
		onHosts.Subcommands = OnHosts(with)
	}
	return []*cli.Command{policyCommand(with), onHosts}
}

// OnHosts are the commands below `genv remote`.
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

type hostConfig struct {
	Hosts         []remote.Host
	SSH           sshclient.Options
	Fanout        int           // hosts to log in to at a time
	StopAtFailure bool          // end at the first failure
	Quiet         bool          // don't print which hosts failed
	Patience      time.Duration // a cycle waits so long for the first login to a host; 0 for unlimited
}

// The hosts of a command that names none.
const (
	namedHosts = iota // an error: it acts on hosts
	allHosts          // all of the inventory: it only reads
	ownHosts          // an error unless config.yaml names them for this command
)

type hostFlags struct {
	command.Program
	unnamed                            int // namedHosts, allHosts or ownHosts
	host, exclude                      []string
	hostFile, username, sshConfig, ssh string
	timeout, commandTimeout            time.Duration
	fanout                             int
	exitOnError, quiet, noSudo         bool
	insecureIgnoreHostKeys, verbose    bool
}

func (o *hostFlags) flags(unnamed int, more ...cli.Flag) []cli.Flag {
	o.unnamed, o.commandTimeout, o.fanout = unnamed, 30*time.Second, 64
	hosts := command.OfFleet
	if unnamed == ownHosts {
		hosts = command.Site
	}
	return append([]cli.Flag{
		command.Strings(&o.host, "host,H", "`HOSTS`: a,b or gpu[01-16].lab or 'gpu-*,!gpu-07' or label:gpu=h100 or "+
			"@group or hosts.yaml; several times").Config(hosts),
		command.String(&o.hostFile, "hostfile", "`FILE` of hosts, one per line or YAML").Config(hosts),
		command.Strings(&o.exclude, "exclude,x", "`HOSTS` to leave out, written as with -H").Config(command.OfFleet),
		command.String(&o.username, "username,l", "`USER` to log in as").Config(command.Connection),
		command.Duration(&o.timeout, "timeout,t", "`TIME` for connecting, the exchange of keys included, in seconds or as "+
			"500ms").Config(command.Connection).DefaultText("10, or ssh_config's ConnectTimeout"),
		command.Duration(&o.commandTimeout, "command-timeout",
			"`TIME` for a command or an answer of a host, in seconds or as 500ms").
			Config(command.Connection).DefaultText("30; in a loop of enforce the interval, from 10 to 30"),
		command.Int(&o.fanout, "fanout", "log in to `N` hosts at a time").AtLeast(1).Config(command.Connection).Hide(),
		command.Bool(&o.exitOnError, "exit-on-error,e", "stop at the first host that fails").Config(command.Connection),
		command.Bool(&o.quiet, "quiet,q", "don't print which hosts failed").Config(command.Connection),
		command.String(&o.sshConfig, "ssh-config,F", "ssh configuration `FILE` instead of ~/.ssh/config").
			Config(command.Connection),
		command.Bool(&o.noSudo, "no-sudo", "run genv on the hosts without sudo, for logins as root; "+
			"`sudo: false` in hosts.yaml does it for some hosts").Config(command.Connection),
		command.String(&o.ssh, "ssh", "`WAY` to reach hosts: builtin, or openssh to run ssh(1), for second factors, "+
			"GSSAPI and what else genv's own SSH can't do").OneOf(inventory.Ways...).
			Config(command.Connection).DefaultText("builtin, or `ssh:` in hosts.yaml"),
		command.Bool(&o.insecureIgnoreHostKeys, "insecure-ignore-host-keys",
			"connect to hosts without checking their keys, in this run").Config(command.AskedToo),
		command.Bool(&o.verbose, "verbose,v", "log more to stderr, such as how each host is reached").
			Config(command.Connection),
	}, more...)
}

func (o *hostFlags) named() bool { return len(o.host) > 0 || o.hostFile != "" }

func (o *hostFlags) readConfig(c *cli.Context) (hostConfig, error) {
	config := hostConfig{
		Fanout:        o.fanout,
		StopAtFailure: o.exitOnError,
		Quiet:         o.quiet && !o.exitOnError, // as in 1.4.3: -e prints why it stops
		SSH: sshclient.Options{
			ConfigFile:       o.sshConfig,
			InsecureHostKeys: o.insecureIgnoreHostKeys,
			ConnectTimeout:   o.timeout, // 0 for ssh_config's ConnectTimeout, or 10 s
			CommandTimeout:   o.commandTimeout,
			Prompt:           render.Prompt(o.In, o.Err),
			Log:              o.Logger(c),
		},
	}
	selection := inventory.Selection{
		Hosts:        o.host,
		HostFile:     o.hostFile,
		Exclude:      o.exclude,
		User:         o.username,
		DefaultFiles: command.ConfigPaths(o.Getenv, command.HostsFile),
		OpenDefault:  command.OpenConfig,
		All:          o.unnamed == allHosts,
	}
	if !selection.All && !o.named() {
		return config, o.unnamedHosts(c)
	}
	var err error
	if config.Hosts, err = inventory.Load(selection, command.OpenAtOnce); err != nil {
		if !o.named() {
			err = o.withElsewhere(c.Context, err)
		}
		return config, &command.ExitError{Code: command.ExitFailed, Err: err, Flag: "host"}
	}
	openSSH := o.ssh == inventory.OpenSSH
	if openSSH && o.insecureIgnoreHostKeys {
		return config, command.WrongFlag("ssh", " openssh and --insecure-ignore-host-keys exclude each other: "+
			"ssh(1) connects to no host with an unknown key")
	}
	personal := c.Command.Category != command.Personal && command.IsPerson(c.Context, o.Getenv)
	for i := range config.Hosts {
		h := &config.Hosts[i]
		if o.ssh != "" {
			h.OpenSSH = openSSH
		}
		h.NoSudo, h.Personal = h.NoSudo || o.noSudo, h.Personal || personal
	}
	return config, nil
}

// withElsewhere adds to an error, on a host that a controller told so, where people look instead.
func (o *hostFlags) withElsewhere(ctx context.Context, err error) error {
	told := localhost.Told(ctx, o.Program)
	if told == nil || told.Page+told.Contact == "" {
		return err
	}
	if told.Page != "" {
		err = fmt.Errorf("%w; %s shows all hosts", err, text.OneLine(told.Page))
	}
	if told.Contact != "" {
		err = fmt.Errorf("%w; questions: %s", err, text.OneLine(told.Contact))
	}
	return err
}

func (o *hostFlags) unnamedHosts(c *cli.Context) error {
	how := "--hostfile FILE"
	if files := command.ConfigPaths(o.Getenv, command.ConfigFile); len(files) > 0 {
		how = fmt.Sprintf("-H @all, or `hosts: \"@all\"` under `%s:` in %s", c.Command.Name, strings.Join(files, " or "))
	}
	return command.UsageError("no hosts are selected: %s takes only hosts that are named; write -H a,b or %s",
		c.Command.HelpName, how)
}
