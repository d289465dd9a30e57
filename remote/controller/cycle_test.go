package controller_test

import (
	"context"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// cycleOf runs one cycle with a policy.
func cycleOf(ctx context.Context, c *controller.Controller, number int, policy enforce.Policy) controller.Cycle {
	c.Policy = policy
	return c.Cycle(ctx, number)
}

// loopOf runs a loop with a policy.
func loopOf(ctx context.Context, c *controller.Controller, policy enforce.Policy, s controller.Schedule, each func(controller.Cycle) error) error {
	c.Policy = policy
	return controller.Loop(ctx, c, s, each)
}

// terminations are processes to end, each with start time 1.
func terminations(pids ...snapshot.PID) []enforce.Termination {
	var list []enforce.Termination
	for _, pid := range pids {
		list = append(list, enforce.Termination{Process: snapshot.Process{PID: pid, Start: 1}})
	}
	return list
}
