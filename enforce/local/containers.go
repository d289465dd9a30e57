package local

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
)

// Containers stops containers of this machine; *container.Lookup is one.
type Containers interface {
	// Init returns the container that has this PID as its first process now.
	Init(ctx context.Context, pid snapshot.PID) (container.Running, error)
	// Stop has a container's engine stop it, and returns when it has stopped.
	Stop(ctx context.Context, r container.Running, grace time.Duration) error
}

// engineGrace is how long a container has to end if the order gives no time, as with `docker stop`.
const engineGrace = 10 * time.Second

// findContainer returns the container of which the target is the first process; nil for none, or if it could not be
// found out, which t.engineErr says then. It comes before the target is verified.
func (x *execution) findContainer(ctx context.Context, t *target, now *inspection) *container.Running {
	listed := now.processes[t.judged.PID]
	if x.options.Containers == nil || listed == nil || listed.ContainerInfo == nil || !listed.ContainerInfo.Init {
		return nil
	}
	running, err := x.options.Containers.Init(ctx, t.judged.PID)
	if err != nil {
		if !errors.Is(err, container.ErrNotInit) {
			t.engineErr = err
		}
		return nil
	}
	return &running
}

// stop has the engine stop the target's container. The kernel drops SIGTERM for the first process of a container
// unless it handles it, so the engine, which follows with SIGKILL, is asked instead of the process. If it can't, the
// target gets the signal itself, and the outcome says so.
func (x *execution) stop(t *target, running container.Running) {
	t.stopping = &running
	grace := x.Grace
	if grace <= 0 {
		grace = engineGrace
	}
	x.stops.Go(func() {
		if err := x.options.Containers.Stop(x.stopping, running, grace); err != nil {
			t.failedStop <- err
			if release, err := x.hold(); err == nil {
				_ = t.fd.signal(unix.SIGTERM) // the wait for its end shows whether it helped
				release()
			}
		}
	})
}

// awaitStops waits for the containers that did not end by themselves: their engines kill
// them now. It returns the targets that still run.
func (x *execution) awaitStops(ctx context.Context, left []*target) ([]*target, error) {
	var stopping, others []*target
	for _, t := range left {
		if t.stopping != nil && len(t.failedStop) == 0 {
			stopping = append(stopping, t)
		} else {
			others = append(others, t)
		}
	}
	if len(stopping) == 0 {
		return left, nil
	}
	stopping, err := wait(ctx, stopping, x.options.KillWait, order.StatusKilled)
	return append(others, stopping...), err
}

// containerReason is what an outcome adds about the target's container; "" for nothing.
func (t *target) containerReason() string {
	switch {
	case t.engineErr != nil:
		return fmt.Sprintf("it is the first process of a container, and its engine could not be asked to stop it: %v",
			t.engineErr)
	case t.stopping == nil:
		return ""
	}
	select {
	case err := <-t.failedStop:
		t.failedStop <- err // for the next caller
		return fmt.Sprintf("it is the first process of %s, and got the signal itself: %v", t.stopping.Text, err)
	default:
		return "its container was stopped: " + t.stopping.Text
	}
}
