package main

import (
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/inventory"
	"github.com/seed-3119e985/genv/remote/sshclient"
)

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
	*controller.Controller
	client  *sshclient.Client
	timeout time.Duration // for a command
	atOnce  int           // hosts that are logged in to at a time
	quiet   bool
	bar     *progress
}

// openFleet reads the flags that all remote commands share. Nothing is
// connected yet; Close ends what was.
func (p *program) openFleet(c *cli.Context) (*fleet, error) {
	if err := refuseArguments(c); err != nil {
		return nil, err
	}
	hosts, err := p.hostsOf(c)
	if err != nil {
		return nil, err
	}
	if err := sshclient.EnoughDescriptors(len(hosts)); err != nil {
		return nil, err
	}
	fanout := given(c, "fanout").Int("fanout")
	if fanout < 1 {
		return nil, usage("--fanout %d: write 1 or more", fanout)
	}
	timeout, err := positiveDuration(c, "command-timeout")
	if err != nil {
		return nil, err
	}
	client, err := p.clientOf(c, timeout)
	if err != nil {
		return nil, err
	}
	bar := newProgress(p.err)
	return &fleet{
		Controller: &controller.Controller{
			Hosts: hosts, Link: agent.Commands{Runner: client}, Fanout: fanout,
			StopAtFailure: given(c, "exit-on-error").Bool("exit-on-error"), Now: p.now, Progress: bar.tell,
		},
		client:  client,
		timeout: timeout,
		atOnce:  fanout,
		quiet:   given(c, "quiet").Bool("quiet"),
		bar:     bar,
	}, nil
}

func (f *fleet) Close() {
	f.bar.end()
	_ = f.client.Close() // it returns nil
}

func (p *program) hostsOf(c *cli.Context) ([]remote.Host, error) {
	selection := inventory.Selection{
		Hosts:        allGiven(c, "host"),
		HostFile:     given(c, "hostfile").String("hostfile"),
		Exclude:      allGiven(c, "exclude"),
		User:         given(c, "username").String("username"),
		DefaultFiles: inventory.DefaultFiles(p.getenv),
	}
	return inventory.Load(selection, openAtOnce)
}

// openAtOnce opens a file or a pipe, such as that of <(…). A FIFO to which
// nobody writes is empty; it does not hold the program.
func openAtOnce(path string) (io.ReadCloser, error) {
	return os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

func (p *program) clientOf(c *cli.Context, command time.Duration) (*sshclient.Client, error) {
	var connect time.Duration // 0 leaves it to ssh_config's ConnectTimeout, or 10 s
	if isGiven(c, "timeout") {
		var err error
		if connect, err = positiveDuration(c, "timeout"); err != nil {
			return nil, err
		}
	}
	return sshclient.New(sshclient.Options{
		ConnectTimeout:   connect,
		CommandTimeout:   command,
		ConfigFile:       given(c, "ssh-config").String("ssh-config"),
		InsecureHostKeys: given(c, "insecure-ignore-host-keys").Bool("insecure-ignore-host-keys"),
		Prompt:           prompt(p.in, p.err),
		Log:              p.logger(c),
	})
}

func positiveDuration(c *cli.Context, flag string) (time.Duration, error) {
	text := given(c, flag).String(flag)
	d, err := duration(text)
	if err != nil || d <= 0 {
		return 0, usage("--%s %q: write seconds, such as 10, or a duration such as 500ms", flag, text)
	}
	return d, nil
}

// logger writes to stderr: warnings, or all with --verbose.
func (p *program) logger(c *cli.Context) zerolog.Logger {
	level := zerolog.WarnLevel
	if given(c, "verbose").Bool("verbose") {
		level = zerolog.DebugLevel
	}
	out := zerolog.ConsoleWriter{Out: p.err, NoColor: !colourful(p.err, p.getenv), TimeFormat: time.TimeOnly}
	return zerolog.New(out).Level(level).With().Timestamp().Logger()
}

// converse has the controller keep a conversation with every host.
func (f *fleet) converse(log zerolog.Logger) *agent.Pool {
	talks := &agent.Pool{
		Start: startOver(f.client), Runner: f.client, Timeout: f.timeout, Fanout: f.atOnce,
		Forget: func(h remote.Host) { f.client.Forget(h) }, Log: log,
	}
	f.Link, f.Fanout = talks, len(f.Hosts) // where a conversation stands, a question costs next to nothing
	return talks
}

// commands asks hosts one genv command at a time.
func (f *fleet) commands() agent.Commands { return agent.Commands{Runner: f.client} }
