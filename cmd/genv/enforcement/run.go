package enforcement

import (
	"time"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/urfave/cli/v2"
)

// Fleet is the hosts to enforce, and how the loop shows them.
type Fleet struct {
	*controller.Controller
	Timeout time.Duration // for a command
	AtOnce  int           // hosts that are logged in to at a time
	Quiet   bool
	Bar     *render.Progress
}

// cycleLimit is after how long a cycle counts as stuck: every host may need its
// time twice, as many at a time as are logged in to, and then there are reports
// with a grace for their processes.
func (f *Fleet) cycleLimit() time.Duration {
	turns := time.Duration(len(f.Hosts)/max(f.AtOnce, 1) + 1)
	return turns*2*(f.Timeout+time.Minute) + 2*agent.MaxGrace
}

// Run runs the controller's loop and shows each cycle. The exit code is that
// of the last cycle that ran to its end.
func (e *Enforcement) Run(c *cli.Context, s controller.Schedule, reload func() (*controller.Controller, error)) error {
	p, f := e.program, e.fleet
	var last error
	ctx, service, end := startService(c.Context, p.Logger(c), &s, f.cycleLimit(), reload)
	defer end()
	err := controller.Loop(ctx, f.Controller, s, func(cycle controller.Cycle) error {
		f.Bar.End()
		service.tell(cycle)
		if ctx.Err() != nil && len(cycle.Actions) == 0 {
			return nil // cut off before anything was done: it says nothing of the hosts
		}
		last = cycleExit(&cycle, f, command.Given(c, "exit-code").Bool("exit-code"))
		if err := e.screen.write(&cycle); err != nil {
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
