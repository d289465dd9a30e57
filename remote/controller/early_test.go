package controller_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// brokenFrom is a record that can't be written from some time on, or until another one.
type brokenFrom struct{ from, until time.Time }

func (f brokenFrom) Append(records ...audit.Record) error {
	if !f.from.IsZero() && time.Now().After(f.from) && (f.until.IsZero() || time.Now().Before(f.until)) && len(records) > 0 {
		return errors.New("no space left")
	}
	return nil
}
func (brokenFrom) Reserve(int64) error { return nil }

func at(seconds float64) { time.Sleep(time.Duration(seconds * float64(time.Second))) }

func outsideWith(w enforce.Warn, l safety.Limits) strict {
	return strict{constant: constant{NonEnvProcesses: true}, warn: w, limits: l}
}

func limited(l safety.Limits) strict { return outsideWith(enforce.Warn{}, l) }

func warned(w enforce.Warn) strict { return outsideWith(w, safety.Limits{}) }

var none = 0

func aStarts(w *wakeful) { at(3); w.starts("a", 5) }

func aAttaches(w *wakeful) { at(3); w.change("a", "a", attach) }

// earlyCases say which host is acted on between two cycles, and when only in a full one: every 10 seconds.
var earlyCases = map[string]struct {
	policy  enforce.Policy // nil for one that ends processes outside of environments
	prepare func(w *wakeful, c *controller.Controller)
	do      func(w *wakeful)
	want    string // "SECOND HOST PID, …"
}{
	"a process starts":        {do: aStarts, want: "3 a 5"},
	"right after another one": {do: func(w *wakeful) { at(2.47); w.starts("a", 5); at(0.02); w.starts("b", 6) }, want: "2 a 5, 2 b 6"},
	"one after the other": {do: func(w *wakeful) {
		aStarts(w)
		at(1)
		w.starts("a", 6)
		w.starts("b", 7)
		at(2)
		w.starts("b", 8)
	}, want: "3 a 5, 4 a 6, 4 b 7, 6 b 8"},
	"processes that draw, or may": {do: func(w *wakeful) {
		w.change("a", "", func(h *wakefulHost) { h.kind, h.processes = snapshot.TypeGraphics, []snapshot.PID{4} })
		w.change("b", "", func(h *wakefulHost) { h.kind, h.processes = snapshot.TypePending, []snapshot.PID{5} })
		at(3)
		w.starts("a", 6)
		w.change("b", "b", func(h *wakefulHost) { h.kind = snapshot.TypeCompute })
	}, want: "3 b 5"},
	"while another order is carried out": {do: func(w *wakeful) {
		w.change("a", "", func(h *wakefulHost) { h.ignores = 5 * time.Second })
		aStarts(w)
		at(1)
		w.starts("a", 6)
		w.starts("b", 7)
	}, want: "3 a 5, 4 a 6, 4 b 7"},
	"while another host keeps the cycle waiting": {do: func(w *wakeful) {
		at(9)
		w.change("b", "", func(h *wakefulHost) { h.takes = 8 * time.Second })
		aStarts(w)
	}, want: "12 a 5"},
	"a host that a cycle asks while another one keeps it waiting": {do: func(w *wakeful) {
		at(9)
		w.change("a", "", func(h *wakefulHost) { h.processes = []snapshot.PID{5} })
		w.change("b", "", func(h *wakefulHost) { h.takes = 8 * time.Second })
	}, want: "10 a 5"},
	"and what it does on that host takes less": {do: func(w *wakeful) {
		w.change("b", "", func(h *wakefulHost) { h.processes = []snapshot.PID{3} }) // it is ended, and done, at a tick
		at(9)
		w.change("a", "", func(h *wakefulHost) { h.processes = []snapshot.PID{5, 6} })
		w.change("b", "", func(h *wakefulHost) { h.takes = 8 * time.Second; h.processes = []snapshot.PID{7} })
	}, want: "0 b 3, 10 a 5, 10 a 6, 18 b 7"},
	"a host without events": {prepare: func(_ *wakeful, c *controller.Controller) { c.Link = controller.Polled{Link: c.Link} }, do: aStarts, want: "10 a 5"},
	"a host that did not wake": {do: func(w *wakeful) {
		at(3)
		w.change("a", "", func(h *wakefulHost) { h.processes = []snapshot.PID{5} })
		w.starts("b", 6)
	}, want: "3 b 6, 10 a 5"},
	"a dry run":        {prepare: func(_ *wakeful, c *controller.Controller) { c.DryRun = true }, do: aStarts},
	"nothing may fail": {prepare: func(_ *wakeful, c *controller.Controller) { c.StopAtFailure = true }, do: aStarts, want: "10 a 5"},
	"a hold": {prepare: func(_ *wakeful, c *controller.Controller) {
		c.Memory.Operator = operator.State{Hold: &operator.OnHold{By: "root", Reason: "maintenance"}}
	}, do: aStarts},
	"a record that can't be kept": {prepare: func(_ *wakeful, c *controller.Controller) { c.Audit = brokenFrom{from: time.Now().Add(time.Second)} }, do: aStarts},
	"a record that could not be kept is tried again at the next event": {prepare: func(_ *wakeful, c *controller.Controller) {
		c.Audit = brokenFrom{from: time.Now().Add(time.Second), until: time.Now().Add(5 * time.Second)}
	}, do: func(w *wakeful) {
		aStarts(w)
		at(3)
		w.starts("b", 6)
	}, want: "6 a 5, 6 b 6"},
	"a host that failed the last cycle": {prepare: func(w *wakeful, _ *controller.Controller) { w.hosts["a"].lost = errors.New("no route") }, do: func(w *wakeful) {
		at(3)
		w.change("a", "", func(h *wakefulHost) { h.lost = nil })
		w.starts("a", 5)
	}, want: "10 a 5"},
	"another machine answers": {do: func(w *wakeful) {
		at(3)
		w.change("a", "", func(h *wakefulHost) { h.boot = "2" })
		w.starts("a", 5)
	}, want: "3 a 5"},
	"a look that fails": {do: func(w *wakeful) {
		at(3)
		w.change("a", "", func(h *wakefulHost) { h.lost = errors.New("nvidia-smi hangs") })
		w.starts("a", 5)
		at(1)
		w.change("a", "", func(h *wakefulHost) { h.lost = nil })
	}, want: "10 a 5"},
	"a cap":   {policy: constant{MaxDevices: &none}, do: aAttaches, want: "3 a detach 0"},
	"a lease": {policy: constant{MaxDuration: time.Second}, do: aAttaches, want: "3 a detach 0"},
	"a warning for cycles": {policy: warned(enforce.Warn{Cycles: 1}), do: func(w *wakeful) {
		for range 5 {
			at(1)
			w.starts("a", 5)
			w.change("a", "a", func(h *wakefulHost) { h.processes = h.processes[:1] })
		}
	}, want: "20 a 5"},
	"a warning for a time": {policy: warned(enforce.Warn{For: 4 * time.Second}), do: func(w *wakeful) {
		aStarts(w)
		at(5)
		w.starts("a", 6)
	}, want: "7 a 5, 12 a 6"},
	"as many as a limit allows in a cycle": {policy: limited(safety.Limits{Fleet: safety.Limit{Terminations: 2}}), do: func(w *wakeful) {
		for i := range 5 {
			at(1)
			w.starts("a", snapshot.PID(5+i))
		}
	}, want: "1 a 5, 2 a 6"},
	"a limit that the tick used up": {policy: limited(safety.Limits{Fleet: safety.Limit{Terminations: 1}}), do: func(w *wakeful) {
		w.change("a", "", func(h *wakefulHost) { h.processes = []snapshot.PID{4} })
		at(3)
		w.starts("b", 5)
	}, want: "0 a 4, 10 b 5"},
	"a look that waited too long, since the controller was busy": {prepare: busyAfter("b", 4*time.Second), do: func(w *wakeful) {
		at(3)
		w.starts("b", 7)
		at(0.5)
		w.starts("a", 5)
	}, want: "3 b 7, 7 a 5"},
	"a look from before the outcome of an order": {do: func(w *wakeful) {
		w.change("a", "", func(h *wakefulHost) { h.ignores, h.quiet = 1500*time.Millisecond, true })
		aStarts(w) // its outcome comes at 4.5 s
		at(1)
		w.change("a", "", func(h *wakefulHost) { h.takes = time.Second })
		w.starts("a", 6) // a look until 5 s, and the next one at the tick
	}, want: "3 a 5, 11 a 6"},
	"a limit of one host holds no other": {policy: limited(safety.Limits{PerHost: safety.Limit{Terminations: 1}}), do: func(w *wakeful) {
		at(3)
		w.change("a", "a", func(h *wakefulHost) { h.processes = []snapshot.PID{5, 6} })
		w.starts("b", 7)
	}, want: "3 b 7"},
}

// busyAfter keeps the controller busy when it has found something on a host between two cycles.
func busyAfter(host snapshot.Hostname, d time.Duration) func(*wakeful, *controller.Controller) {
	return func(_ *wakeful, c *controller.Controller) {
		var once sync.Once
		c.Sinks = []controller.Sink{sinkOf(func(round *controller.Round, _ []enforce.Event) {
			at := slices.IndexFunc(round.Cluster.Hosts, func(h snapshot.Host) bool { return h.Name == host })
			if round.Early > 0 && !round.Ended && round.Cluster.Hosts[at].IsNew {
				once.Do(func() { time.Sleep(d) })
			}
		})}
	}
}

func TestEarlyCycles(t *testing.T) {
	for name, row := range earlyCases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWakeful("a", "b")
				c := controllerOf(w, warned(enforce.Warn{}), "a", "b")
				if row.policy != nil {
					c.Policy = row.policy
				}
				if row.prepare != nil {
					row.prepare(w, c)
				}
				go row.do(w)
				synctest.Wait()
				shown := 0
				err := controller.Loop(t.Context(), c, controller.LoopOptions{Interval: 10 * time.Second, Cycles: 3}, func(round controller.Round) error {
					shown++
					require.Equal(t, shown, round.Number)
					return nil
				})
				require.NoError(t, err)
				require.Equal(t, 3, shown, "only ticks are shown")
				slices.Sort(w.ended)
				slices.SortStableFunc(w.ended, func(a, b string) int { return len(strings.Fields(a)[0]) - len(strings.Fields(b)[0]) })
				require.Equal(t, row.want, strings.Join(w.ended, ", "))
				require.Len(t, slices.Compact(slices.Sorted(slices.Values(w.orders))), len(w.orders), "each order has its own ID")
				time.Sleep(time.Minute) // what is under way at the hosts ends
			})
		})
	}
}

// A host that always says that something happened is asked at a bounded rate, and delays no other.
func TestAHostThatAlwaysWakes(t *testing.T) {
	for name, row := range map[string]struct {
		changes bool
		most    int // looks in a minute
	}{"and nothing changes": {false, 50 + 120 + 2*8}, "and everything changes": {true, 600 + 2*8}} { // a tick may look twice
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWakeful("a", "b")
				w.hosts["a"].always, w.hosts["a"].changes = true, row.changes
				c := controllerOf(w, warned(enforce.Warn{}), "a", "b")
				go func() {
					at(35)
					w.starts("b", 9)
				}()
				ticks(t, c, 10*time.Second, 7)
				require.Equal(t, []string{"35 b 9"}, w.ended)
				require.LessOrEqual(t, w.hosts["a"].asked, row.most)
				require.Greater(t, w.hosts["a"].asked, 60)
			})
		})
	}
}

// What viewers and the record get of an early cycle: all hosts, of which one is new.
func TestWhatAnEarlyCycleShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWakeful("a", "b")
		w.hosts["b"].processes = []snapshot.PID{3}
		var seen []controller.Round
		c := controllerOf(w, warned(enforce.Warn{For: time.Hour}), "a", "b")
		c.Sinks = []controller.Sink{sinkOf(func(round *controller.Round, _ []enforce.Event) { seen = append(seen, *round) })}
		go func() {
			aStarts(w)
			at(1)
			w.change("a", "a", func(*wakefulHost) {}) // nothing is new
		}()
		earlier := 0
		err := controller.Loop(t.Context(), c, controller.LoopOptions{Interval: 10 * time.Second, Cycles: 2}, func(round controller.Round) error {
			earlier += round.Earlier
			return nil
		})
		require.NoError(t, err)
		seen = slices.DeleteFunc(seen, func(round controller.Round) bool { return round.Early == 0 || round.Ended })
		require.Equal(t, 2, earlier)
		require.Len(t, seen, 1, "the second one had nothing new")
		require.True(t, seen[0].Cluster.Hosts[0].IsNew)
		require.False(t, seen[0].Cluster.Hosts[1].IsNew)
		require.Equal(t, 1, seen[0].Number)
		require.Equal(t, 3*time.Second, seen[0].Now.Sub(w.begun).Round(time.Second))
		require.Len(t, seen[0].Cluster.Hosts, 2)
		require.Len(t, seen[0].Plan.Findings, 2, "what is known of the other host stays")
		require.Empty(t, seen[0].Plan.Orders)
	})
}

// The record says from when the snapshot is that was judged.
func TestTheTimeOfASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWakeful("a", "b")
		w.hosts["b"].processes = []snapshot.PID{4}
		c, path := controllerOf(w, warned(enforce.Warn{}), "a", "b"), filepath.Join(t.TempDir(), "audit.jsonl")
		c.Audit = &audit.Log{Path: path}
		go func() {
			for i := range 2 {
				at(3)
				w.starts("a", snapshot.PID(5+i))
			}
		}()
		ticks(t, c, 10*time.Second, 2)
		var titles []string
		for _, r := range recordsOf(t, path, audit.KindOrder) {
			titles = append(titles, r.Judged[0])
		}
		begun := func(s time.Duration) string { return w.begun.Add(s*time.Second).UTC().Format(time.DateTime) + " UTC" }
		require.Equal(t, []string{"snapshot of b, " + begun(0), "snapshot of a, " + begun(3), "snapshot of a, " + begun(6)}, titles)
	})
}

// A disk that hangs keeps the orders back, and nothing else.
func TestASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWakeful("a", "b")
		var found []string
		c := controllerOf(w, warned(enforce.Warn{}), "a", "b")
		c.Store = storeFunc(func(controller.Saved) error { time.Sleep(5 * time.Second); return nil })
		c.Memory.Operator.Exemptions = policy.ExemptionList{{Who: policy.Who{User: "bob"}, Until: time.Now().Add(6500 * time.Millisecond)}}
		c.Sinks = []controller.Sink{sinkOf(func(_ *controller.Round, events []enforce.Event) {
			for _, e := range events {
				if e.Kind == enforce.EventActing {
					found = append(found, fmt.Sprintf("%.0f %s", time.Since(w.begun).Seconds(), e.Host))
				}
			}
		})}
		go func() {
			at(6) // the save of the first cycle is over
			w.starts("a", 5)
			at(1)
			w.starts("b", 6)
		}()
		ticks(t, c, time.Minute, 2)
		require.Equal(t, []string{"6 a", "7 b"}, found)
		require.Equal(t, []string{"11 a 5", "16 b 6"}, w.ended)
	})
}

type sinkOf func(*controller.Round, []enforce.Event)

func (s sinkOf) Consume(round *controller.Round, events []enforce.Event) { s(round, events) }

// plans is a companion that looks at the rounds that are judged.
type plans func(*controller.Round)

func (p plans) Plan(round *controller.Round, _ []enforce.Event) (none []*controller.Delivery, effects controller.Effects) {
	p(round)
	return none, effects
}

func (plans) Learn(*controller.Round, *controller.Delivery) (none controller.Effects) { return none }

// TestASlowHost: the others are new in a judgement of each cycle, and asked again only if that comes late. The loop
// itself takes some time.
func TestASlowHost(t *testing.T) {
	for name, row := range map[string]struct {
		stop bool // at failure
		want string
		asks int
	}{"usually": {false, "2 a 5", 3}, "nothing may fail": {true, "3 a 5", 4}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, isNew := newWakeful("a", "slow"), make(map[string]bool)
				w.hosts["a"].processes, w.hosts["slow"].takes = []snapshot.PID{5}, 3*time.Second
				c := controllerOf(controller.Polled{Link: w}, warned(enforce.Warn{}), "a", "slow")
				c.StopAtFailure = row.stop
				c.Companions = []controller.Companion{plans(func(round *controller.Round) {
					for _, h := range round.Cluster.Hosts {
						if h.IsNew {
							isNew[fmt.Sprint(h.Name, h.Round)] = true
						}
					}
				})}
				step := func(time.Duration) { time.Sleep(time.Millisecond) }
				schedule := controller.LoopOptions{Interval: 10 * time.Second, Cycles: 3, Step: step}
				require.NoError(t, controller.Loop(t.Context(), c, schedule, shown))
				require.Len(t, isNew, 6)
				require.Equal(t, []string{row.want}, w.ended)
				require.Equal(t, row.asks, w.hosts["a"].asked)
			})
		})
	}
}

// Without a policy nothing is judged, and an answer is new once.
func TestNewWithoutAPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, isNew := newWakeful("a", "slow"), 0
		w.hosts["slow"].takes = 3 * time.Second
		c := controllerOf(controller.Polled{Link: w}, nil, "a", "slow")
		c.Sinks = []controller.Sink{sinkOf(func(round *controller.Round, _ []enforce.Event) {
			for _, h := range round.Cluster.Hosts {
				if h.IsNew && !round.Ended {
					isNew++
				}
			}
		})}
		require.NoError(t, controller.Loop(t.Context(), c, controller.LoopOptions{}, shown))
		require.Equal(t, 2, isNew)
	})
}
