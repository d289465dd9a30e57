package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
)

// controllerTime is how long a controller has to answer.
const controllerTime = 10 * time.Second

func guardFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "guard", Usage: "also what the running controller knows of the hosts' kernel guards, and whether root owns their state"},
		socketFlag("with --guard: ask the controller with this `PATH`"),
	}
}

// addGuards adds to hosts what the running controller knows of them. Without a controller
// nothing is known, which is said, and no error.
func (p *program) addGuards(c *cli.Context, hosts []selectedHost) error {
	path, err := p.findController(c)
	if err != nil {
		return err
	}
	if path == "" {
		_, err := fmt.Fprintln(p.Err, "No controller is running, so nothing is known about the guards: start `genv remote enforce` or `genv remote watch`.")
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, controllerTime)
	defer cancel()
	client := live.NewClient(path)
	defer client.Close()
	fleet, err := client.Fleet(ctx)
	if err != nil {
		return fmt.Errorf("ask the controller at %s: %w", path, err)
	}
	known := make(map[snapshot.Hostname]*live.Host, len(fleet.Hosts))
	for i := range fleet.Hosts {
		known[fleet.Hosts[i].Name] = &fleet.Hosts[i]
	}
	for i := range hosts {
		hosts[i].live = known[snapshot.Hostname(hosts[i].Host)]
		if l := hosts[i].live; l != nil {
			hosts[i].Guard, hosts[i].Service = l.Guard, l.Service
		}
	}
	return nil
}

// guardColumns come after the others.
func guardColumns() []render.Column {
	return []render.Column{render.Col("SERVICE", 9), render.Col("GUARD", 0)}
}

// guardCells are what is known of a host; what isn't is unknown, and not off.
func (h *selectedHost) guardCells() []string {
	const unknown = "unknown"
	switch {
	case h.live == nil:
		return []string{unknown, unknown}
	case h.live.Failure != nil:
		return []string{unknown, fmt.Sprintf("%s: the host failed (%s)", unknown, h.live.Failure.Class)}
	}
	service, guard := h.live.ServiceState(), h.Guard.String()
	if h.Service == nil {
		service = unknown
	}
	switch {
	case guard != "":
	case h.Guard.Mode == "":
		guard = unknown
	default:
		guard = string(h.Guard.Mode)
	}
	return []string{service, guard}
}

// checkGuardFlags refuses a --socket that nothing asks for.
func checkGuardFlags(c *cli.Context) error {
	if command.IsGiven(c, "socket") && !c.Bool("guard") {
		return command.UsageError("--socket needs --guard")
	}
	return nil
}
