package local_test

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// machine answers with what a test set up.
type machine struct {
	apps  []snapshot.Process
	envs  []snapshot.Environment
	state []snapshot.Device
	err   error

	stateErr error
	gpus     map[snapshot.DeviceIndex]snapshot.GPUUUID
	asked    int
	then     func() // called at each question, before the answer
}

func (m *machine) Processes(context.Context) ([]snapshot.Process, []string, error) {
	m.asked++
	if m.then != nil {
		m.then()
	}
	return m.apps, nil, m.err
}

func (m *machine) GPUs(context.Context) (map[snapshot.DeviceIndex]snapshot.GPUUUID, error) {
	return m.gpus, m.err
}

func (m *machine) Environments(context.Context) ([]snapshot.Environment, []string, error) {
	return m.envs, nil, m.err
}

func (m *machine) Devices(context.Context) ([]snapshot.Device, []string, error) {
	return m.state, nil, m.stateErr
}

// stateFiles holds its content in memory.
type stateFiles struct {
	content state.Files
	err     error
	full    error // of writing
}

func (b *stateFiles) Update(_ context.Context, change func(*state.Files) error) error {
	if b.err != nil {
		return b.err
	}
	return cmp.Or(change(&b.content), b.full)
}

// scene is an Executor and its fakes.
type scene struct {
	machine    *machine
	stateFiles *stateFiles
	lines      []string
	x          *local.Executor
}

func newScene(o local.ExecutorOptions, apps ...snapshot.Process) *scene {
	s := &scene{machine: &machine{apps: apps}, stateFiles: &stateFiles{}}
	s.x = local.New(s.machine, s.stateFiles, o).OnAction(func(line string) { s.lines = append(s.lines, line) })
	return s
}

// terminate carries out an order of terminations.
func (s *scene) terminate(t *testing.T, processes ...snapshot.Process) []order.Outcome {
	return s.terminateIn(t, context.Background(), processes...)
}

func (s *scene) terminateIn(t *testing.T, ctx context.Context, processes ...snapshot.Process) []order.Outcome { //nolint:revive // t first, as everywhere in tests
	var o order.Order
	for _, p := range processes {
		o.Terminate = append(o.Terminate, order.Termination{Process: p})
	}
	outcomes := s.x.Execute(ctx, o)
	require.Len(t, outcomes, len(processes))
	for i, p := range processes {
		require.Equal(t, p.PID, outcomes[i].PID)
		require.Equal(t, p.EID, outcomes[i].EID)
	}
	return outcomes
}

// oneGrace is more than any of these processes needs to end.
const oneGrace = time.Minute

var errDriver = errors.New("the driver is ill")
