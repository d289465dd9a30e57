package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/top"
	"github.com/seed-3119e985/genv/snapshot"
)

// topConfig is what the flags of `genv remote top` say.
type topConfig struct {
	socket   string // to read from; empty if the program looks itself
	interval time.Duration
	plain    bool
	cycles   int
	allow    bool // actions
	filter   top.Filter
}

func (p *program) topCommand() *cli.Command {
	return &cli.Command{
		Name:   "top",
		Usage:  "watch hosts, GPUs, users and findings live on the terminal",
		Flags:  remoteFlags(allHosts, topFlags()...),
		Action: p.remoteTop,
	}
}

func topFlags() []cli.Flag {
	return []cli.Flag{
		socketFlag("read from the controller with this `PATH` (or off: look at the hosts)"),
		command.Lasting(&cli.StringFlag{Name: "interval", Category: command.Site, Aliases: []string{"i"}, Value: "10", Usage: "without a controller: `TIME` between two looks at the hosts, in seconds or as 500ms"}),
		&cli.StringFlag{Name: "filter", Category: command.Site, Usage: "show only what meets `CONDITIONS`, such as 'host~gpu-1 user=bob util<5 state=finding'"},
		&cli.BoolFlag{Name: "plain", Usage: "print lines, for screen readers and logs: a host again when it has changed"},
		&cli.BoolFlag{Name: "once", Usage: "with --plain: print each host once, and end"},
		command.AtLeast(0, &cli.IntFlag{Name: "cycles", Usage: "with --plain: end after `N` cycles; 0 never ends"}),
		&cli.BoolFlag{Name: "allow-actions", Category: command.Asked, Usage: "allow to exempt and hold, each after a confirmation; with sudo"},
	}
}

// socketFlag is the flag for findController.
func socketFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "socket", Category: command.Site + command.Top + command.OrOff + command.Unless(socket.Variable), DefaultText: "that of the running controller", Usage: usage + "; $" + socket.Variable}
}

func (p *program) readTopConfig(c *cli.Context) (config topConfig, err error) {
	config = topConfig{cycles: c.Int("cycles"), plain: c.Bool("plain"), allow: c.Bool("allow-actions"), interval: command.Duration(c, "interval")}
	if config.filter, err = top.ParseFilter(c.String("filter")); err != nil {
		return config, command.UsageError("--filter: %w", err)
	}
	switch {
	case !config.plain && (config.cycles > 0 || c.Bool("once")):
		return config, command.UsageError("--once and --cycles need --plain")
	case !config.plain && !render.IsTerminal(p.Out):
		return config, command.UsageError("the output is not a terminal: --plain prints lines")
	}
	if c.Bool("once") {
		config.cycles = 1
	}
	config.socket, err = p.findController(c)
	return config, err
}

// findController returns the socket of the running controller; empty if there is none.
func (p *program) findController(c *cli.Context) (string, error) {
	path, given := c.String("socket"), command.IsGiven(c, "socket")
	switch {
	case given && path == "":
		return "", command.UsageError("--socket: write a path, or off")
	case path == socket.Off:
		return "", nil
	case !given:
		path = socket.Find(p.Getenv, os.Geteuid())
	}
	if path == "" {
		return "", nil
	}
	switch living, err := socket.Answers(c.Context, path); {
	case living:
		return path, nil
	case given && err == nil:
		return "", command.UsageError("--socket %s: no controller listens there; start `genv remote enforce` or `genv remote watch` with this --socket, or look at the hosts: --socket off -H HOSTS", path)
	case err != nil: // a second program that asks all hosts would not be welcome
		return "", command.UsageError("the controller's socket: %w; %s, or as a member of the group %s; everybody may look at the hosts: --socket off -H HOSTS", err, command.AskWithSudo, socket.Group)
	}
	return "", nil
}

func (p *program) remoteTop(c *cli.Context) error {
	config, err := p.readTopConfig(c)
	if err != nil {
		return err
	}
	options := top.Options{
		In: p.In, Out: p.Out, Now: p.Now, Filter: config.filter,
		Colour: render.Colourful(p.Out, p.Getenv), NoAct: "this view is read-only: start it with --allow-actions",
	}
	if options.SSH, options.Hosts, err = p.topHosts(c); err != nil {
		return err
	}
	source, err := p.topSource(c, config)
	if err != nil {
		return err
	}
	defer source.Close()
	options.Source = source
	if config.allow {
		options.Act, options.NoAct = source.act, ""
	}
	if !config.plain {
		return top.Run(c.Context, options)
	}
	if !command.Bool(c, "quiet") {
		options.Failures = func(failures []remote.Failure, total int) { render.WriteFailures(p.Err, failures, total) }
	}
	fleet, err := top.Plain(c.Context, p.Out, options, config.cycles)
	if err != nil || fleet == nil {
		return err
	}
	return command.FleetExit(fleet.Failed, len(fleet.Hosts)-len(fleet.Failed))
}

// topHosts are the arguments of ssh to a host, and the hosts that flags name; nil if no
// flag names any.
func (p *program) topHosts(c *cli.Context) (arguments []string, hosts map[snapshot.Hostname]bool, err error) {
	if file := command.String(c, "ssh-config"); file != "" {
		arguments = append(arguments, "-F", file)
	}
	if user := command.String(c, "username"); user != "" {
		arguments = append(arguments, "-l", user)
	}
	if len(command.AllGiven(c, "host"))+len(command.AllGiven(c, "exclude")) == 0 && command.String(c, "hostfile") == "" {
		return arguments, nil, nil
	}
	config, err := p.readConfig(c)
	hosts = make(map[snapshot.Hostname]bool)
	for _, h := range config.Hosts {
		hosts[snapshot.Hostname(h.Name)] = true
	}
	return arguments, hosts, err
}

// topSource is a running controller, or looks of this program for as long as there is no
// controller: never both.
type topSource struct {
	follower *top.SocketSource
	look     *ownLooks

	mu   sync.Mutex
	path string // of the controller's socket; empty while there is none
}

// topSource connects to the controller, or begins to look at the hosts.
func (p *program) topSource(c *cli.Context, config topConfig) (*topSource, error) {
	s := new(topSource)
	if config.socket != "" {
		s.follow(config.socket)
		return s, nil
	}
	fleet, err := p.readLoopConfig(c, config.interval)
	if err != nil {
		return nil, noController(c, err)
	}
	if !config.plain { // the screen is the view's
		fleet.SSH.Prompt, fleet.SSH.Log = nil, zerolog.Nop()
	}
	f, err := p.open(fleet)
	if err != nil {
		return nil, err
	}
	s.look = f.look(c.Context, config.interval, func() string { return p.appeared(c) })
	return s, nil
}

// noController is the error of a view that found no controller and can't look at the hosts.
func noController(c *cli.Context, err error) error {
	if c.String("socket") == socket.Off {
		return fmt.Errorf("no controller is asked: %w", err)
	}
	return fmt.Errorf("no running controller was found: %w", err)
}

// appeared is the socket of a controller that was started meanwhile; empty for none.
func (p *program) appeared(c *cli.Context) string {
	if c.String("socket") == socket.Off {
		return ""
	}
	path := socket.Find(p.Getenv, os.Geteuid())
	if living, _ := socket.Answers(c.Context, path); path == "" || !living {
		return ""
	}
	return path
}

func (s *topSource) follow(path string) {
	s.follower = top.Follow(live.NewClient(path))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.path = path
}

// Next implements top.Source.
func (s *topSource) Next(ctx context.Context) (top.Update, error) {
	if s.follower == nil {
		update, err := s.look.Next(ctx)
		var started *startedError
		if !errors.As(err, &started) {
			return update, err
		}
		s.look.close()
		s.look = nil
		s.follow(started.path)
	}
	return s.follower.Next(ctx)
}

// Close ends the connections.
func (s *topSource) Close() {
	if s.follower != nil {
		s.follower.Close()
	}
	if s.look != nil {
		s.look.close()
	}
}

// act asks the controller for something.
func (s *topSource) act(ctx context.Context, action *operator.Action) (operator.Answer, error) {
	s.mu.Lock()
	path := s.path
	s.mu.Unlock()
	if path == "" {
		return operator.Answer{}, errors.New("actions need a running controller: start `genv remote enforce`")
	}
	answer, err := live.SendAction(ctx, path, *action)
	var refusal *operator.Refusal
	if errors.As(err, &refusal) && refusal.NextStep != "" {
		err = fmt.Errorf("%w. %s", err, refusal.NextStep)
	}
	return answer, err
}

// ownLooks asks the hosts at an interval, as `genv remote watch` does.
type ownLooks struct {
	*top.FeedSource
	fleet   *fleet
	pool    *agent.Pool
	context context.Context //nolint:containedctx // ends, with the cause, when a controller was started
	cancel  context.CancelCauseFunc
	stopped chan struct{} // when the last question has been answered
}

// startedError ends looks when a controller looks.
type startedError struct{ path string }

func (e *startedError) Error() string { return "a controller was started: " + e.path }

// look begins. It ends by itself before a look if a controller appeared.
func (f *fleet) look(ctx context.Context, interval time.Duration, appeared func() string) *ownLooks {
	ctx, cancel := context.WithCancelCause(ctx)
	feed := live.NewFeed(live.Options{Now: f.program.Now, Interval: interval})
	l := &ownLooks{FeedSource: top.OfFeed(feed, "own looks"), fleet: f, pool: f.pool(), context: ctx, cancel: cancel, stopped: make(chan struct{})}
	c := &controller.Controller{Options: controller.Options{
		Asker:  controller.Asker{Hosts: f.Hosts, Link: f.visible(l.pool, interval), Fanout: len(f.Hosts)},
		Policy: new(policy.File), DryRun: true, Sinks: []controller.Sink{feed}, Now: f.program.Now,
	}}
	schedule := controller.Schedule{Interval: interval, Step: func(wait time.Duration) {
		if wait > 0 {
			return
		}
		if path := appeared(); path != "" {
			cancel(&startedError{path})
		}
	}}
	go func() {
		defer close(l.stopped)
		_ = controller.Loop(ctx, c, schedule, func(controller.Cycle) error { return nil }) // it returns what this returns
	}()
	return l
}

// Next implements top.Source.
func (l *ownLooks) Next(ctx context.Context) (top.Update, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.context, cancel)()
	update, err := l.FeedSource.Next(within)
	if err != nil && ctx.Err() == nil {
		err = context.Cause(l.context)
	}
	return update, err
}

func (l *ownLooks) close() {
	l.cancel(nil)
	<-l.stopped
	l.Close()
	l.pool.Close()
	l.fleet.close()
}
