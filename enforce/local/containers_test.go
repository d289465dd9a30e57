package local_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
)

// engines stand for a container engine that stops containers with SIGKILL.
type engines struct {
	initErr, stopErr error
	pid              snapshot.PID
	stopped          int
	grace            time.Duration
}

func (e *engines) Init(_ context.Context, pid snapshot.PID) (container.Running, error) {
	e.pid = pid
	return container.Running{Text: "container web (cuda:12)"}, e.initErr
}

func (e *engines) Stop(_ context.Context, _ container.Running, grace time.Duration) error {
	e.stopped, e.grace = e.stopped+1, grace
	if e.stopErr != nil {
		return e.stopErr
	}
	return unix.Kill(int(e.pid), unix.SIGKILL)
}

// TestTheEngineStopsAContainer: for the first process of a container, and for nothing else.
func TestTheEngineStopsAContainer(t *testing.T) {
	const stopped = "its container was stopped: container web (cuda:12)"
	for name, row := range map[string]struct {
		engines engines
		init    bool
		changed bool
		status  enforce.Status
		by      unix.Signal
		stops   int
		reason  string
	}{
		"the first process":         {init: true, status: enforce.StatusTerminated, by: unix.SIGKILL, stops: 1, reason: stopped},
		"another process":           {status: enforce.StatusTerminated, by: unix.SIGTERM},
		"of another container now":  {engines: engines{initErr: container.ErrNotInit}, init: true, status: enforce.StatusTerminated, by: unix.SIGTERM},
		"an engine that is unknown": {engines: engines{initErr: errors.New("no answer")}, init: true, status: enforce.StatusTerminated, by: unix.SIGTERM, reason: "it is the first process of a container, and its engine could not be asked to stop it: no answer"},
		"an engine that refuses":    {engines: engines{stopErr: errors.New("refused")}, init: true, status: enforce.StatusTerminated, by: unix.SIGTERM, stops: 1, reason: "it is the first process of container web (cuda:12), and got the signal itself: refused"},
		"not what was judged":       {init: true, changed: true, status: enforce.StatusChanged},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, "gentle", in("7"))
			now := snapshot.Process{PID: c.pid(), Usage: usage(0, 1), Container: "web", ContainerInfo: &snapshot.ContainerInfo{Init: row.init}}
			judged := c.judged("7", 0, 1)
			if row.changed {
				judged.Start++
			}
			s := newScene(local.ExecutorOptions{Grace: oneGrace, Containers: &row.engines}, now)
			got := s.terminate(t, judged)[0]
			require.Equal(t, row.status, got.Status, got.Reason)
			require.Equal(t, row.stops, row.engines.stopped)
			if row.changed {
				require.NoError(t, unix.Kill(int(c.pid()), 0), "it goes on")
				return
			}
			require.Equal(t, row.reason, got.Reason)
			require.Len(t, s.lines, 1)
			c.endedBy(row.by)
			if row.stops > 0 {
				require.Equal(t, oneGrace, row.engines.grace)
			}
		})
	}
}
