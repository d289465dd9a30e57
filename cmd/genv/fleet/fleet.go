package fleet

import (
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/sshclient"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/enforcement"
	"github.com/seed-3119e985/genv/cmd/genv/render"
)

// program is genv as its commands see it.
type program struct{ command.Program }

// Commands are what administrators run on a controller.
func Commands(with command.Program) []*cli.Command {
	p := &program{with}
	return []*cli.Command{p.policyCommand(), p.remoteCommand()}
}

func (p *program) remoteCommand() *cli.Command {
	return &cli.Command{
		Name:  "remote",
		Usage: "work on many hosts over SSH",
		Flags: remoteFlags(),
		Subcommands: []*cli.Command{
			p.remoteActivateCommand(),
			p.remoteEnforceCommand(),
			p.remoteHistoryCommand(),
			p.remoteDevicesCommand(),
			p.remoteEnvsCommand(),
			p.remoteQueryCommand(),
		},
	}
}

// remoteFlags are taken by `genv remote` and by each of its commands.
func remoteFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "host", Aliases: []string{"H"}, Usage: "`HOSTS`: a,b or gpu[01-16].lab or @group or hosts.yaml; several times"},
		&cli.StringFlag{Name: "hostfile", Usage: "`FILE` of hosts, one a line or YAML"},
		&cli.StringSliceFlag{Name: "exclude", Aliases: []string{"x"}, Usage: "`HOSTS` to leave out, written as with -H"},
		&cli.StringFlag{Name: "username", Aliases: []string{"l"}, Usage: "`USER` to log in as"},
		&cli.StringFlag{Name: "timeout", Aliases: []string{"t"}, DefaultText: "10, or ssh_config's ConnectTimeout", Usage: "`TIME` for connecting, the handshake included, in seconds or as 500ms"},
		&cli.StringFlag{Name: "command-timeout", Value: "30", DefaultText: "30; in a loop of enforce the interval, from 10 to 30", Usage: "`TIME` for a command or an answer of a host, in seconds or as 500ms"},
		&cli.IntFlag{Name: "fanout", Value: 64, Usage: "log in to `N` hosts at a time"},
		&cli.BoolFlag{Name: "exit-on-error", Aliases: []string{"e"}, Usage: "stop at the first host that fails"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "say nothing of hosts that failed"},
		&cli.StringFlag{Name: "ssh-config", Aliases: []string{"F"}, Usage: "ssh configuration `FILE` instead of ~/.ssh/config"},
		&cli.BoolFlag{Name: "insecure-ignore-host-keys", Usage: "connect to hosts whose keys nobody checked, in this run"},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log more to stderr, such as how each host is spoken with"},
	}
}

// fleet is what a `genv remote` command works with.
type fleet struct {
	*enforcement.Fleet
	client *sshclient.Client
}

// openFleet reads the flags that all remote commands share. Nothing is
// connected yet; Close ends what was.
func (p *program) openFleet(c *cli.Context) (*fleet, error) {
	if err := command.RefuseArguments(c); err != nil {
		return nil, err
	}
	hosts, err := p.hostsOf(c)
	if err != nil {
		return nil, err
	}
	if err := sshclient.EnoughDescriptors(len(hosts)); err != nil {
		return nil, err
	}
	fanout := command.Given(c, "fanout").Int("fanout")
	if fanout < 1 {
		return nil, command.Usage("--fanout %d: write 1 or more", fanout)
	}
	timeout, err := command.PositiveDuration(c, "command-timeout")
	if err != nil {
		return nil, err
	}
	client, err := p.clientOf(c, timeout)
	if err != nil {
		return nil, err
	}
	bar := render.NewProgress(p.Err)
	return &fleet{client: client, Fleet: &enforcement.Fleet{
		Controller: &controller.Controller{
			Hosts: hosts, Link: agent.Commands{Network: client}, Fanout: fanout,
			StopAtFailure: command.Given(c, "exit-on-error").Bool("exit-on-error"), Now: p.Now, Progress: bar.Tell,
		},
		Timeout: timeout,
		AtOnce:  fanout,
		Quiet:   command.Given(c, "quiet").Bool("quiet"),
		Bar:     bar,
	}}, nil
}

func (f *fleet) Close() {
	f.Bar.End()
	_ = f.client.Close() // it returns nil
}

func (p *program) hostsOf(c *cli.Context) ([]remote.Host, error) {
	selection := inventory.Selection{
		Hosts:        command.AllGiven(c, "host"),
		HostFile:     command.Given(c, "hostfile").String("hostfile"),
		Exclude:      command.AllGiven(c, "exclude"),
		User:         command.Given(c, "username").String("username"),
		DefaultFiles: inventory.DefaultFiles(p.Getenv),
	}
	return inventory.Load(selection, command.OpenAtOnce)
}

func (p *program) clientOf(c *cli.Context, limit time.Duration) (*sshclient.Client, error) {
	var connect time.Duration // 0 leaves it to ssh_config's ConnectTimeout, or 10 s
	if command.IsGiven(c, "timeout") {
		var err error
		if connect, err = command.PositiveDuration(c, "timeout"); err != nil {
			return nil, err
		}
	}
	return sshclient.New(sshclient.Options{
		ConnectTimeout:   connect,
		CommandTimeout:   limit,
		ConfigFile:       command.Given(c, "ssh-config").String("ssh-config"),
		InsecureHostKeys: command.Given(c, "insecure-ignore-host-keys").Bool("insecure-ignore-host-keys"),
		Prompt:           render.Prompt(p.In, p.Err),
		Log:              p.Logger(c),
	})
}

// connect has the controller keep a connection to every host.
func (f *fleet) connect(log zerolog.Logger) *agent.Pool {
	pool := &agent.Pool{
		Start: agent.StartWith(f.client.Start), Network: f.client, Timeout: f.Timeout, Fanout: f.AtOnce,
		Log: log,
	}
	f.Link, f.Fanout = pool, len(f.Hosts) // on a connection that is there, a request costs next to nothing
	return pool
}

// commands asks hosts one genv command at a time.
func (f *fleet) commands() agent.Commands { return agent.Commands{Network: f.client} }

// conclude is the end of a command on a fleet: the summary of failures on
// stderr, and the exit code.
func (p *program) conclude(f *fleet, failures []render.Failure, duplicates []controller.Duplicate) error {
	f.Bar.End()
	hosts := len(f.Hosts) - len(duplicates)
	render.WriteDuplicates(p.Err, duplicates)
	if !f.Quiet {
		render.WriteFailures(p.Err, failures, hosts)
	}
	return command.FleetExit(failures, hosts, f.Quiet)
}
