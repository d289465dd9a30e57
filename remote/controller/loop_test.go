package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/testfleet/genvhost"
	"github.com/seed-3119e985/genv/snapshot"
)

// slow is a Link that takes the given times, in turn, and ignores its context.
type slow struct {
	plain
	takes   []time.Duration
	asked   []time.Time
	running bool
}

func (l *slow) Snapshot(context.Context, remote.Host) (*snapshot.Snapshot, error) {
	if l.running {
		return nil, errors.New("two cycles at once")
	}
	l.running = true
	take := l.takes[len(l.asked)%len(l.takes)]
	l.asked = append(l.asked, time.Now())
	time.Sleep(take)
	l.running = false
	return &snapshot.Snapshot{}, nil
}

func (l *slow) Execute(context.Context, remote.Host, order.Order) (agent.Execution, error) {
	return agent.Execution{}, nil
}

func looping(l controller.Link) *controller.Controller { return controllerOf(l, nil, "a") }

// TestCyclesKeepTime: cycles begin at multiples of the interval after the first,
// whatever they take; none overlaps, and none is made up for.
func TestCyclesKeepTime(t *testing.T) {
	const s = time.Second
	for _, tt := range []struct {
		name  string
		takes []time.Duration
		want  []time.Duration
	}{
		{"short ones", []time.Duration{s / 10}, []time.Duration{0, 10 * s, 20 * s, 30 * s}},
		{"one that takes long", []time.Duration{s, 15 * s, s}, []time.Duration{0, 10 * s, 30 * s, 40 * s}},
		{"all take long", []time.Duration{25 * s}, []time.Duration{0, 30 * s, 60 * s, 90 * s}},
		{"just as long as the interval", []time.Duration{10 * s}, []time.Duration{0, 20 * s, 40 * s, 60 * s}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				link, begun := &slow{takes: tt.takes}, time.Now()
				err := loopOf(t.Context(), looping(link), usual, controller.LoopOptions{Interval: 10 * s, Cycles: 4}, func(c controller.Round) error {
					require.Empty(t, c.Cluster.Failed())
					return nil
				})
				require.NoError(t, err)
				var starts []time.Duration
				for _, at := range link.asked {
					starts = append(starts, at.Sub(begun))
				}
				require.Equal(t, tt.want, starts)
			})
		})
	}
}

func TestTheLoopEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once := 0
		require.NoError(t, loopOf(t.Context(), looping(&slow{takes: []time.Duration{0}}), usual, controller.LoopOptions{}, func(controller.Round) error {
			once++
			return nil
		}))
		require.Equal(t, 1, once, "an interval of 0 is once")

		enough := errors.New("enough")
		err := loopOf(t.Context(), looping(&slow{takes: []time.Duration{0}}), usual, controller.LoopOptions{Interval: time.Second}, func(c controller.Round) error {
			if c.Number == 3 {
				return enough
			}
			return nil
		})
		require.ErrorIs(t, err, enough)

		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		begun := time.Now()
		require.NoError(t, loopOf(ctx, looping(&slow{takes: []time.Duration{0}}), usual, controller.LoopOptions{Interval: time.Hour}, shown))
		require.Equal(t, 25*time.Second, time.Since(begun), "in the middle of a wait")
	})
}

// TestSIGHUPBetweenCycles: it waits for the cycle, not for the next one.
func TestSIGHUPBetweenCycles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, hangup := time.Now(), make(chan os.Signal, 1)
		var reread []time.Duration
		schedule := controller.LoopOptions{
			Interval: time.Minute, Cycles: 3, Hangup: hangup,
			Reload: func() { reread = append(reread, time.Since(begun)) },
		}
		time.AfterFunc(3*time.Second, func() { hangup <- syscall.SIGHUP })  // within the first cycle
		time.AfterFunc(30*time.Second, func() { hangup <- syscall.SIGHUP }) // in the wait after it
		require.NoError(t, loopOf(t.Context(), looping(&slow{takes: []time.Duration{10 * time.Second}}), usual, schedule, shown))
		require.Equal(t, []time.Duration{10 * time.Second, 30 * time.Second}, reread)
		require.Equal(t, 130*time.Second, time.Since(begun), "cycles kept their time")
	})
}

// Each step says how long it may take until the next one: also while orders are waited for, which may take
// much longer than hosts may take to answer.
func TestSteps(t *testing.T) {
	errEnd := errors.New("the end")
	const limit = 30 * time.Second // what a service allows where a step says 0
	for name, row := range map[string]struct {
		schedule controller.LoopOptions
		order    time.Duration // that an order takes
		stop     time.Duration // after which the run is stopped; 0 for never
		each     error
	}{
		"two cycles":              {schedule: controller.LoopOptions{Interval: time.Minute, Cycles: 2}, order: 10 * time.Second},
		"long orders":             {schedule: controller.LoopOptions{Interval: 20 * time.Minute, Cycles: 2}, order: 19 * time.Minute},
		"a single cycle":          {schedule: controller.LoopOptions{}, order: time.Hour},
		"the last cycle":          {schedule: controller.LoopOptions{Interval: time.Minute, Cycles: 1}, order: time.Hour},
		"an error after a cycle":  {schedule: controller.LoopOptions{Interval: time.Second}, order: time.Hour, each: errEnd},
		"it is stopped in a wait": {schedule: controller.LoopOptions{Interval: 5 * time.Second}, order: time.Hour, stop: 4990 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := looping(takesTime{order: row.order})
			ctx := t.Context()
			if row.stop > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, row.stop)
				defer cancel()
			}
			due := time.Now().Add(limit)
			row.schedule.Step = func(wait time.Duration) {
				require.False(t, time.Now().After(due), name)
				if wait == 0 {
					wait = limit
				}
				due = time.Now().Add(wait)
			}
			require.ErrorIs(t, loopOf(ctx, c, strict{}, row.schedule, func(controller.Round) error { return row.each }), row.each, name)
			require.False(t, time.Now().After(due.Add(time.Millisecond)), name)
		})
	}
}

// takesTime is a Link to a host on which an order takes a while.
type takesTime struct {
	plain
	order time.Duration
}

func (takesTime) Snapshot(context.Context, remote.Host) (*snapshot.Snapshot, error) {
	return genvhost.Busy(1), nil
}

func (l takesTime) Execute(_ context.Context, _ remote.Host, o order.Order) (agent.Execution, error) {
	time.Sleep(l.order)
	return carriedOut(o), nil
}

// patient is a Link to a host on which an order takes an hour.
var patient = takesTime{order: time.Hour}

// A leader that becomes a standby doesn't wait until a process has had its grace, or it could be
// elected again and not act meanwhile. What came of it is shown when it is known.
func TestARoleThatEndsDuringALongOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leader, standby := looping(patient), looping(patient)
		standby.Policy, standby.DryRun = nil, true
		term, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		begun := time.Now()
		require.NoError(t, loopOf(term, leader, strict{}, controller.LoopOptions{Interval: time.Minute, Drain: 4 * time.Second}, shown))
		require.Equal(t, 14*time.Second, time.Since(begun))
		leader.Configure(standby.Options)
		var came []time.Duration
		require.NoError(t, loopOf(t.Context(), leader, usual, controller.LoopOptions{Interval: time.Minute, Cycles: 80}, func(c controller.Round) error {
			if len(c.Results) > 0 {
				came = append(came, time.Since(begun).Truncate(time.Minute))
			}
			return nil
		}))
		require.Equal(t, []time.Duration{time.Hour}, came)
	})
}

// untilWaiting runs a loop with a cycle every 5 seconds until it waits for its second cycle, while an order is under way.
func untilWaiting(t *testing.T, c *controller.Controller) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4900*time.Millisecond)
	defer cancel()
	require.NoError(t, loopOf(ctx, c, strict{}, controller.LoopOptions{Interval: 5 * time.Second, Drain: time.Second}, shown))
}

// A loop ends after its number of cycles, also if the one before it passed that number when it ended.
func TestCyclesThatWerePassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := looping(patient)
		untilWaiting(t, c)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		var numbers []int
		require.NoError(t, loopOf(ctx, c, usual, controller.LoopOptions{Interval: time.Minute, Cycles: 2}, func(round controller.Round) error {
			numbers = append(numbers, round.Number)
			return nil
		}))
		require.Equal(t, []int{2}, numbers)
	})
}

// What writes the memory has ended when Finish returns: the program may write it itself then.
func TestFinishWaitsForTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := looping(patient)
		var writing atomic.Int32
		c.Store = storeFunc(func(controller.Saved) error {
			writing.Add(1)
			time.Sleep(time.Second)
			writing.Add(-1)
			return nil
		})
		untilWaiting(t, c)
		require.NoError(t, c.Finish(t.Context(), func(round controller.Round) error {
			require.Less(t, round.Took, time.Hour, "since this round began")
			synctest.Wait()
			require.EqualValues(t, 1, writing.Load(), "the outcome came")
			return nil
		}))
		require.Zero(t, writing.Load())
	})
}

// leaving is a Companion that once has something for a host that isn't in the fleet.
type leaving struct{ learnt chan error }

func (leaving) Plan(round *controller.Round, _ []enforce.Event) ([]*controller.Delivery, controller.Effects) {
	if round.Early > 0 {
		return nil, controller.Effects{}
	}
	return []*controller.Delivery{{Host: "gone", Send: func(context.Context, controller.Link, remote.Host) error { return nil }}}, controller.Effects{}
}

func (l leaving) Learn(_ *controller.Round, d *controller.Delivery) controller.Effects {
	l.learnt <- d.Err
	return controller.Effects{}
}

// TestADeliveryToAHostThatLeft ends at once: nothing waits for it.
func TestADeliveryToAHostThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, l := looping(&slow{takes: []time.Duration{0}}), leaving{make(chan error, 9)}
		c.Companions = []controller.Companion{l}
		begun := time.Now()
		require.NoError(t, loopOf(t.Context(), c, usual, controller.LoopOptions{}, shown))
		require.Less(t, time.Since(begun), time.Second)
		require.Equal(t, remote.Cancelled, remote.ClassOf(<-l.learnt))
	})
}

// takesEach is a Link to hosts of which a snapshot takes a time each. It notes when each was asked first.
type takesEach struct {
	plain
	takes map[string]time.Duration
	first *sync.Map // of time.Time, by name
}

func (l takesEach) Snapshot(_ context.Context, h remote.Host) (*snapshot.Snapshot, error) {
	l.first.LoadOrStore(h.Name, time.Now())
	time.Sleep(l.takes[h.Name])
	return &snapshot.Snapshot{}, nil
}

func (takesEach) Execute(context.Context, remote.Host, order.Order) (agent.Execution, error) {
	return agent.Execution{}, nil
}

// TestAReloadComesBeforeTheTick: the hosts of the new files are asked then, not those of the old ones. A companion that
// wasn't there before gets its memory.
func TestAReloadComesBeforeTheTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, hangup := time.Now(), make(chan os.Signal, 1)
		link := takesEach{takes: map[string]time.Duration{"slow": 15 * time.Second}, first: new(sync.Map)}
		c, messages := controllerOf(link, nil, "a", "slow"), new(companions.Messages)
		c.Memory.Companions = map[string]json.RawMessage{messages.Name(): []byte(`{"exempted": {"x": true}}`)}
		schedule := controller.LoopOptions{Interval: 10 * time.Second, Cycles: 4, Hangup: hangup, Reload: func() {
			options := c.Options
			options.Companions = []controller.Companion{messages}
			options.Hosts = append(options.Hosts, remote.Host{Name: "new"})
			c.Configure(options)
		}}
		time.AfterFunc(5*time.Second, func() { hangup <- syscall.SIGHUP })
		require.NoError(t, loopOf(t.Context(), c, usual, schedule, shown))
		asked, known := link.first.Load("new")
		require.True(t, known)
		require.Equal(t, 10*time.Second, asked.(time.Time).Sub(begun))
		require.True(t, messages.Exempted["x"])
	})
}

// TestWhatIsLearntLastIsSaved: who takes over from a leader that ends leaves alone what survived SIGTERM.
func TestWhatIsLearntLastIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		c := looping(survives{})
		var saved controller.Saved
		c.Store = storeFunc(func(s controller.Saved) error { saved = s; return nil })
		require.NoError(t, loopOf(ctx, c, strict{}, controller.LoopOptions{Interval: time.Minute}, shown))
		want, err := c.Encode(time.Now())
		require.NoError(t, err)
		require.NotEmpty(t, c.Memory.Rules.Stuck)
		require.Equal(t, string(want.Memory), string(saved.Memory))
	})
}

// survives is a Link to a host on which a process can't be ended.
type survives struct{ takesTime }

func (survives) Execute(_ context.Context, _ remote.Host, o order.Order) (agent.Execution, error) {
	time.Sleep(5 * time.Second)
	return agent.Execution{Outcomes: []order.Outcome{{PID: o.Terminate[0].Process.PID, Status: order.StatusRefused, Reason: "no"}}}, nil
}
