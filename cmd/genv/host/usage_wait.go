package host

import (
	"context"
	"encoding/json"
	"io"

	"github.com/urfave/cli/v2"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/service"
)

func (p *program) usageWaitCommand() *cli.Command {
	r, index := new(service.WaitRequest), ""
	return &cli.Command{
		Name:  "wait",
		Usage: "wait in the queue of this host until GPUs are kept for this user, or stdin is closed; print JSON lines",
		Flags: []cli.Flag{
			command.Int(&r.GPUs, "gpus", "wait for `N` free GPUs").AtLeast(1),
			command.String(&index, "index", "only these GPUs: `INDEX`, or several with commas"),
			command.String(&r.ID, "id", "`ID` of the wait, the same on all hosts"),
		},
		Action: func(c *cli.Context) error {
			if index != "" {
				if err := json.Unmarshal([]byte("["+index+"]"), &r.Suits); err != nil {
					return command.WrongFlag("index", " %q: write indices with commas", index)
				}
			}
			return p.usageWait(c.Context, r)
		},
	}
}

// usageWait has no queue to wait in where the state isn't root's: then its error is service.ErrNotRunning.
func (p *program) usageWait(ctx context.Context, r *service.WaitRequest) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, p.In) // until who waits has gone
		cancel()
	}()
	var offered []snapshot.DeviceIndex
	_, err := p.openHost().Service.Wait(ctx, *r, func(place *service.Place) {
		if place == nil || offered != nil {
			return
		}
		if json.NewEncoder(p.Out).Encode(place) != nil || place.Offered != nil {
			offered = place.Offered
			cancel()
		}
	})
	if offered != nil {
		err = nil
	}
	return err
}
