package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/sshclient"
	"github.com/seed-3119e985/genv/remote/top"
	"github.com/seed-3119e985/genv/snapshot"
)

type topOptions struct {
	hostFlags
	socket, filter string
	interval       time.Duration
	cycles         int
	plain, once    bool
	allowActions   bool
	from           string // the controller's socket; empty to ask hosts
}

func topCommand(h hostFlags) *cli.Command {
	o := &topOptions{hostFlags: h, interval: 10 * time.Second}
	return &cli.Command{
		Name:  "top",
		Usage: "watch hosts, GPUs, users and findings live on the terminal",
		Flags: o.flags(allHosts,
			command.String(&o.socket, "socket", "read from the controller with this `PATH` (or off: look at the "+
				"hosts); $"+socket.Variable).Config(command.Top|command.Shared|command.OrOff).Unless(socket.Variable).
				DefaultText("that of the running controller"),
			command.Duration(&o.interval, "interval,i", "without a controller: `TIME` between two looks at the hosts, "+
				"in seconds or as 500ms").Config(command.Site),
			command.String(&o.filter, "filter",
				"show only what meets `CONDITIONS`, such as 'host~gpu-1 user=bob util<5 "+
					"state=finding'").Config(command.Site),
			command.Bool(&o.plain, "plain", "print lines, for screen readers and logs: a host again when it has "+
				"changed"),
			command.Bool(&o.once, "once", "with --plain: print each host once, and end"),
			command.Int(&o.cycles, "cycles", "with --plain: end after `N` cycles; 0 never ends").AtLeast(0),
			command.Bool(&o.allowActions, "allow-actions",
				"allow to exempt and hold, each after a confirmation; with sudo").Config(command.Asked),
		),
		Action: o.run,
	}
}

func (o *topOptions) read(c *cli.Context) (filter top.Filter, err error) {
	if filter, err = top.ParseFilter(o.filter); err != nil {
		return filter, command.WrongFlag("filter", ": %w", err)
	}
	switch {
	case !o.plain && (o.cycles > 0 || o.once):
		return filter, command.WrongFlag("once", " and --cycles need --plain")
	case !o.plain && !render.IsTerminal(o.Out):
		return filter, command.UsageError("the output is not a terminal: --plain prints lines, and with --once it ends")
	}
	if o.once {
		o.cycles = 1
	}
	o.from, err = o.findController(c)
	return filter, err
}

// findController returns "" for none.
func (o *topOptions) findController(c *cli.Context) (string, error) {
	path, given := o.socket, c.IsSet("socket")
	switch {
	case given && path == "":
		return "", command.WrongFlag("socket", ": write a path, or off")
	case path == socket.Off:
		return "", nil
	case !given:
		path = socket.Find(o.Getenv, os.Geteuid())
	}
	if path == "" {
		return "", nil
	}
	switch living, err := socket.Answers(c.Context, path); {
	case living:
		return path, nil
	case given && err == nil:
		return "", command.WrongFlag("socket", " %s: no controller listens there; start `genv remote enforce` or "+
			"`genv remote watch` with this --socket, or look at the hosts: --socket off -H HOSTS", path)
	case err != nil: // don't burden the hosts with a second program
		return "", command.UsageError("the controller's socket: %w; %s, or as a member of the group %s; "+
			"everybody may look at the hosts: --socket off -H HOSTS", err, command.AskWithSudo, socket.Group)
	}
	return "", nil
}

func (o *topOptions) run(c *cli.Context) error {
	filter, err := o.read(c)
	if err != nil {
		return err
	}
	options := top.Options{
		In: o.In, Out: o.Out, Now: o.Now, Filter: filter,
		Colour: render.Colourful(o.Out, o.Getenv), NoAct: "this view is read-only: start it with --allow-actions",
	}
	if options.Hosts, err = o.topHosts(c); err != nil {
		return err
	}
	options.SSH = func(host string) []string { return o.sshArguments(c.Context, host) }
	source, err := o.source(c)
	if err != nil {
		return err
	}
	defer func() { source.stop() }()
	options.Next = source.Next
	if o.allowActions {
		options.Act, options.NoAct = source.act, ""
	}
	if !o.plain {
		return top.Run(c.Context, options)
	}
	if !o.quiet {
		options.Failures = func(failures []remote.Failure, total int) { render.WriteFailures(o.Err, failures, total) }
	}
	fleet, err := top.Plain(c.Context, o.Out, options, o.cycles)
	if err != nil || fleet == nil {
		return err
	}
	return command.FleetExit(fleet.Failed, len(fleet.Hosts)-len(fleet.Failed))
}

// sshArguments are ssh's arguments before a host, with the host keys that genv trusts.
func (o *topOptions) sshArguments(ctx context.Context, host string) (arguments []string) {
	client := sshclient.New(sshclient.Options{ConfigFile: o.sshConfig})
	defer client.Close()
	arguments = client.KnownHosts(ctx, remote.Host{Name: host})
	if o.sshConfig != "" {
		arguments = append(arguments, "-F", o.sshConfig)
	}
	if o.username != "" {
		arguments = append(arguments, "-l", o.username)
	}
	return arguments
}

// topHosts is nil if no flag names hosts.
func (o *topOptions) topHosts(c *cli.Context) (hosts map[snapshot.Hostname]bool, err error) {
	if !o.named() && len(o.exclude) == 0 {
		return nil, nil
	}
	config, err := o.readConfig(c)
	hosts = make(map[snapshot.Hostname]bool)
	for _, h := range config.Hosts {
		hosts[snapshot.Hostname(h.Name)] = true
	}
	return hosts, err
}

// topSource is a running controller, or this program's own looks while there is none.
type topSource struct {
	follower top.Next // nil while there is no controller
	looks    top.Next
	looking  context.Context //nolint:containedctx // ends when a controller starts
	stop     func()          // ends the looks, or the connection to the controller

	path atomic.Pointer[string] // of the controller's socket; empty while there is none
}

func (o *topOptions) source(c *cli.Context) (*topSource, error) {
	s := new(topSource)
	s.path.Store(&o.from)
	if o.from != "" {
		s.follow(o.from)
		return s, nil
	}
	config, err := o.readLoopConfig(c, o.interval)
	if err != nil {
		why := map[bool]string{true: "no controller is asked", false: "no running controller was found"}
		return nil, fmt.Errorf("%s: %w", why[o.socket == socket.Off], err)
	}
	if !o.plain { // the view owns the screen
		config.SSH.Prompt, config.SSH.Log = nil, zerolog.Nop()
	}
	f, err := o.open(config)
	if err != nil {
		return nil, err
	}
	s.look(c.Context, f, o.interval, func() string { // the socket of a new controller
		return runningController(c.Context, o.Getenv, o.socket)
	})
	return s, nil
}

// runningController is the socket of this machine's controller: the named one, or the one found; empty for none.
func runningController(ctx context.Context, getenv func(string) string, named string) string {
	path := cmp.Or(named, socket.Find(getenv, os.Geteuid()))
	if path == "" || path == socket.Off {
		return ""
	}
	if living, _ := socket.Answers(ctx, path); !living {
		return ""
	}
	return path
}

// Next is a top.Next.
func (s *topSource) Next(ctx context.Context) (top.Update, error) {
	if s.follower == nil {
		within, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(s.looking, cancel)()
		if update, err := s.looks(within); err == nil || ctx.Err() != nil || *s.path.Load() == "" {
			return update, err
		}
		s.stop()
		s.follow(*s.path.Load())
	}
	return s.follower(ctx)
}

func (s *topSource) follow(path string) {
	client := live.NewClient(path)
	s.follower, s.stop = top.Follow(client), client.Close
}

func (s *topSource) act(ctx context.Context, action *operator.Action) (operator.Answer, error) {
	path := *s.path.Load()
	if path == "" {
		return operator.Answer{}, errors.New("actions need a running controller: start `genv remote enforce`")
	}
	answer, err := live.SendAction(ctx, path, *action)
	return answer, operator.WithNextStep(err)
}

// look asks the hosts at an interval, as `genv remote watch` does, until a controller appears.
func (s *topSource) look(ctx context.Context, f *fleet, interval time.Duration, appeared func() string) {
	ctx, cancel := context.WithCancel(ctx)
	feed := live.NewFeed(live.Options{Now: f.Now, Interval: interval})
	stopped := make(chan struct{})
	looks, end := top.OfFeed(feed, "own looks")
	s.looks, s.looking = looks, ctx
	s.stop = func() {
		cancel()
		<-stopped
		end()
		f.close()
	}
	link := controller.Polled{Link: f.visible(interval)}
	c := &controller.Controller{Options: controller.Options{
		Survey: controller.Survey{Hosts: f.Hosts, Link: link, Fanout: len(f.Hosts)},
		Policy: new(policy.File), DryRun: true, Sinks: []controller.Sink{feed}, Now: f.Now,
	}}
	schedule := controller.LoopOptions{Interval: interval, Step: func(wait time.Duration) {
		if wait > 0 {
			return
		}
		if path := appeared(); path != "" {
			s.path.Store(&path)
			cancel()
		}
	}}
	go func() {
		defer close(stopped)
		// the callback never fails
		_ = controller.Loop(ctx, c, schedule, func(controller.Round) error { return nil })
	}()
}
