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

	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/live/socket"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/top"
)

// topSource is a running controller, or looks of this program for as long as there is no
// controller: never both.
type topSource struct {
	follower *top.Follower
	look     *look

	mu   sync.Mutex
	path string // of the controller's socket; empty while there is none
}

// topSource connects to the controller, or begins to look at the hosts.
func (p *program) topSource(c *cli.Context, config topConfig) (*topSource, error) {
	s := new(topSource)
	if config.socket != "" {
		s.follow(c.Context, config.socket)
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

func (s *topSource) follow(ctx context.Context, path string) {
	s.follower = top.Follow(ctx, live.NewClient(path))
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
		s.follow(ctx, started.path)
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

// look asks the hosts at an interval, as `genv remote watch` does.
type look struct {
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
func (f *fleet) look(ctx context.Context, interval time.Duration, appeared func() string) *look {
	ctx, cancel := context.WithCancelCause(ctx)
	feed := live.NewFeed(live.Options{Now: f.program.Now, Interval: interval})
	l := &look{FeedSource: top.OfFeed(feed, "own looks"), fleet: f, pool: f.pool(), context: ctx, cancel: cancel, stopped: make(chan struct{})}
	c := &controller.Controller{
		Asker:  controller.Asker{Hosts: f.Hosts, Link: f.visible(l.pool, interval), Fanout: len(f.Hosts)},
		Policy: new(policy.File), DryRun: true, Sinks: []controller.Sink{feed}, Now: f.program.Now,
	}
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
		_ = controller.Loop(ctx, c, schedule, func(cycle controller.Cycle) error { // it returns what this returns
			feed.Show(&cycle)
			return nil
		})
	}()
	return l
}

// Next implements top.Source.
func (l *look) Next(ctx context.Context) (top.Update, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.context, cancel)()
	update, err := l.FeedSource.Next(within)
	if err != nil && ctx.Err() == nil {
		err = context.Cause(l.context)
	}
	return update, err
}

func (l *look) close() {
	l.cancel(nil)
	<-l.stopped
	l.Close()
	l.pool.Close()
	l.fleet.close()
}
