package local_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/enforce/local"
	"github.com/seed-3119e985/genv/enforce/local/ending"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// uptime is the time since the boot, which only moves when a test says so.
type uptime struct{ now time.Duration }

func (u *uptime) register(t *testing.T) *ending.Register {
	return &ending.Register{
		Path: filepath.Join(t.TempDir(), "asked.json"), BootID: "b",
		SinceBoot: func() (time.Duration, error) { return u.now, nil },
	}
}

func newOrder(id string, grace time.Duration, kill bool, processes ...snapshot.Process) order.Order {
	o := order.Order{ID: id, Options: order.Options{GraceMS: grace.Milliseconds(), Kill: kill}}
	for _, p := range processes {
		o.Terminate = append(o.Terminate, order.Termination{Process: p})
	}
	return o
}

// A process that another order has asked to end gets no second SIGTERM, its grace doesn't
// begin again, and SIGKILL follows only if it had SIGTERM and all of its grace.
func TestEarlierOrder(t *testing.T) {
	const short, long = aMoment, time.Hour
	for name, row := range map[string]struct {
		by, id string        // of the earlier order
		grace  time.Duration // that it gave
		unsent bool          // genv was killed before it signalled, or before it noted that
		ago    time.Duration
		as     string // of the controller that reports now
		wait   time.Duration
		kill   bool
		status order.OutcomeStatus
		lines  int
	}{
		"another controller":                   {by: "a", id: "1", grace: long, ago: time.Minute, as: "b", wait: short, kill: true, status: order.StatusSignalled},
		"its grace ends while the other waits": {by: "a", id: "1", grace: time.Hour + short, ago: time.Hour, as: "b", wait: long, kill: true, status: order.StatusKilled, lines: 1},
		"its grace has just ended":             {by: "a", id: "1", grace: time.Minute, ago: time.Minute + time.Second, as: "b", wait: long, kill: true, status: order.StatusKilled, lines: 1},
		"its grace has just ended, no SIGKILL": {by: "a", id: "1", grace: time.Minute, ago: time.Minute + time.Second, as: "b", wait: short, status: order.StatusSurvived},
		"its grace ended long ago":             {by: "a", id: "1", grace: time.Minute, ago: 2 * time.Minute, as: "b", wait: short, kill: true, status: order.StatusKilled, lines: 2},
		"perhaps not sent":                     {by: "a", id: "1", grace: time.Hour + short, unsent: true, ago: time.Hour, as: "b", wait: short + short, kill: true, status: order.StatusSignalled},
		"perhaps not sent, and over":           {by: "a", id: "1", grace: time.Minute, unsent: true, ago: time.Minute, as: "b", wait: short, kill: true, status: order.StatusKilled, lines: 2},
		"the same order again":                 {by: "a", id: "2", grace: long, ago: time.Minute, as: "a", wait: short, kill: true, status: order.StatusSignalled},
		"another order of the same controller": {by: "a", id: "1", grace: long, ago: time.Minute, as: "a", wait: short, kill: true, status: order.StatusSignalled},
		"of the same controller, and over":     {by: "a", id: "1", grace: time.Minute, ago: time.Minute, as: "a", wait: short, kill: true, status: order.StatusKilled, lines: 2},
		"of controllers that aren't known":     {grace: long, ago: time.Minute, wait: short, kill: true, status: order.StatusSignalled},
		"of such ones, and over":               {grace: time.Minute, ago: time.Minute, wait: short, kill: true, status: order.StatusKilled, lines: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ready(t, "stubborn", in("7"))
			judged := c.judged("7", 0)
			up := &uptime{now: time.Hour}
			register := up.register(t)
			key := []proc.ID{{PID: judged.PID, Start: judged.Start}}
			end, earlier, err := register.Begin(ending.EndRequest{By: row.by, Order: row.id, Grace: row.grace}, key)
			require.NoError(t, err)
			require.Equal(t, []*ending.Earlier{nil}, earlier)
			if !row.unsent {
				require.NoError(t, end(key))
			}
			up.now += row.ago

			s := newScene(local.ExecutorOptions{Asked: register}, judged)
			got := s.x.As(ending.Authority{Name: row.as}, s.note, ignore).Execute(t.Context(), newOrder("2", row.wait, row.kill, judged))[0]
			require.Equal(t, row.status, got.Status, got.Reason)
			require.Len(t, s.lines, row.lines)
			if row.lines < 2 {
				require.Contains(t, got.Reason, "already under way: another order asked it to end ")
			} else {
				require.Empty(t, got.Reason)
			}
			if row.lines == 0 {
				c.answers()
			} else {
				c.endedBy(unix.SIGKILL)
			}
		})
	}
}

// Two controllers that have the same process ended at the same time.
func TestOrdersAtTheSameTime(t *testing.T) {
	c := ready(t, "stubborn", in("7"))
	judged := c.judged("7", 0)
	register := (&uptime{}).register(t)
	var lines atomic.Int32
	var orders sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		x := local.New(&machine{apps: []snapshot.Process{judged}}, nil, local.ExecutorOptions{Asked: register})
		x = x.As(ending.Authority{Name: name}, func(string) { lines.Add(1) }, ignore)
		orders.Go(func() { x.Execute(context.Background(), newOrder(name, aMoment, false, judged)) })
	}
	orders.Wait()
	require.EqualValues(t, 1, lines.Load())
	c.answers()
}

var errReplaced = errors.New("refused: replaced by another one")

// Once its controller is replaced, an order that began before does nothing any more.
func TestAReplacedControllersOrder(t *testing.T) {
	for name, row := range map[string]struct {
		after  int // acts that are still admitted
		status order.OutcomeStatus
		lines  int
	}{
		"before SIGTERM": {0, order.StatusFailed, 0},
		"before SIGKILL": {1, order.StatusFailed, 1},
		"never":          {2, order.StatusKilled, 2},
	} {
		t.Run(name, func(t *testing.T) {
			c := ready(t, "stubborn", in("7"))
			judged := c.judged("7", 0)
			held, acts := 0, 0
			asker := ending.Authority{Name: "a", Hold: func() (func(), error) {
				if acts++; acts > row.after {
					return nil, errReplaced
				}
				held++
				return func() { held-- }, nil
			}}
			register := (&uptime{}).register(t)
			s := newScene(local.ExecutorOptions{Asked: register}, judged)
			x := s.x.As(asker, func(line string) {
				require.Equal(t, 1, held, "while it acts, no other one begins")
				s.note(line)
			}, ignore)
			got := x.Execute(t.Context(), newOrder("1", aMoment, true, judged))[0]
			require.Equal(t, row.status, got.Status, got.Reason)
			require.Len(t, s.lines, row.lines)
			require.Zero(t, held)
			if row.status == order.StatusFailed {
				require.Contains(t, got.Reason, errReplaced.Error())
				c.answers()
			}
			if row.lines > 0 {
				return
			}
			other := s.x.As(ending.Authority{Name: "b"}, s.note, ignore)
			require.Equal(t, order.StatusKilled, other.Execute(t.Context(), newOrder("2", aMoment, true, judged))[0].Status)
			require.Len(t, s.lines, 2, "who didn't act is not in the way of who may")
		})
	}
}

// Nothing is detached for a controller that was replaced.
func TestAReplacedControllerDetachesNothing(t *testing.T) {
	s := newScene(local.ExecutorOptions{})
	mine := environment("7", snapshot.UID(os.Getuid()), "me")
	s.stateFiles.content = state.Files{Environments: []snapshot.Environment{mine}, Devices: []snapshot.Device{device(0, "7")}}
	refuses := ending.Authority{Hold: func() (func(), error) { return nil, errReplaced }}
	got := s.x.As(refuses, s.note, ignore).Execute(t.Context(), detaching(mine, 0))[0]
	require.Equal(t, order.StatusFailed, got.Status)
	require.Contains(t, got.Reason, errReplaced.Error())
	require.Equal(t, []snapshot.Device{device(0, "7")}, s.stateFiles.content.Devices)
	require.Empty(t, s.lines)
}

// A list that can't be written keeps no process running, and the answer says so.
func TestTheListCannotBeWritten(t *testing.T) {
	c := ready(t, "gentle", in("7"))
	judged := c.judged("7", 0)
	register := (&uptime{}).register(t)
	require.NoError(t, os.Mkdir(register.Path, 0o700))
	s := newScene(local.ExecutorOptions{Asked: register}, judged)
	var warnings []string
	x := s.x.As(ending.Authority{}, s.note, func(text string) { warnings = append(warnings, text) })
	require.Equal(t, order.StatusTerminated, x.Execute(t.Context(), newOrder("1", oneGrace, false, judged))[0].Status)
	require.Len(t, warnings, 1)
	require.Contains(t, warnings[0], "another controller may ask them once more")
}
