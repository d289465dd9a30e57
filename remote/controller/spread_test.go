package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// spreadFleet is 41 hosts, which listen after 1 second: ticks spread their looks over one
// second, from h00 at 10 s to h40 at 11 s.
func spreadFleet(policy enforce.Policy) (*wakeful, *controller.Controller) {
	names := make([]string, 41)
	for i := range names {
		names[i] = fmt.Sprintf("h%02d", i)
	}
	w := newWakeful(names...)
	c := controllerOf(w, policy, names...)
	go func() {
		at(1)
		for _, name := range names {
			w.change(name, name, func(*wakefulHost) {})
		}
	}()
	return w, c
}

// looksOf are the times of the looks at a host from 10 s on.
func (w *wakeful) looksOf(name string) []time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(w.hosts[name].looks), func(d time.Duration) bool { return d < 10*time.Second })
}

func TestLooksOfAFullCycleAreSpread(t *testing.T) {
	const begin, gap, end = 10 * time.Second, 25 * time.Millisecond, 11 * time.Second
	spread, atOnce := [4]time.Duration{begin, begin + gap, begin + 2*gap, end}, [4]time.Duration{begin, begin, begin, begin}
	for name, row := range map[string]struct {
		prepare func(*wakeful, *controller.Controller)
		do      func(*wakeful)
		want    [4]time.Duration // of h00, h01, h02 and h40, once each
	}{
		"where events are reported": {want: spread},
		"the others at once": {
			do: func(w *wakeful) {
				at(5)
				w.change("h00", "h00", func(h *wakefulHost) { h.deaf = true })
				w.change("h02", "h02", func(h *wakefulHost) { h.deaf = true })
			},
			want: [4]time.Duration{begin, begin, begin, end - 2*gap},
		},
		"once, also if events end in the meantime": {
			do: func(w *wakeful) {
				at(10.5)
				w.change("h00", "h00", func(h *wakefulHost) { h.deaf = true })
			},
			want: spread,
		},
		"not without events":               {prepare: func(_ *wakeful, c *controller.Controller) { c.Link = controller.Polled{Link: c.Link} }, want: atOnce},
		"not in a dry run":                 {prepare: func(_ *wakeful, c *controller.Controller) { c.DryRun = true }, want: atOnce},
		"not if a failure stops the cycle": {prepare: func(_ *wakeful, c *controller.Controller) { c.StopAtFailure = true }, want: atOnce},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := spreadFleet(warned(enforce.Warn{}))
				if row.prepare != nil {
					row.prepare(w, c)
				}
				if row.do != nil {
					go row.do(w)
				}
				ticks(t, c, 10*time.Second, 2)
				for i, name := range []string{"h00", "h01", "h02", "h40"} {
					require.Equal(t, []time.Duration{row.want[i]}, w.looksOf(name), name)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

func TestASpreadCycleEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, c := spreadFleet(warned(enforce.Warn{}))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10100*time.Millisecond, cancel)
		begun := time.Now()
		require.NoError(t, controller.Loop(ctx, c, controller.LoopOptions{Interval: 10 * time.Second}, shown))
		require.Equal(t, 10100*time.Millisecond, time.Since(begun))
	})
}

var one = 1

func attach(h *wakefulHost) { h.attached = true }
func detach(h *wakefulHost) { h.attached = false }

// spreadCases are about a tick from 10 s to 11 s.
var spreadCases = map[string]struct {
	policy enforce.Policy
	do     func(*wakeful)
	ended  []string
	events map[string]int // of findings that are new or over, by "KIND HOST"
}{
	"a user who goes from one host to another one has one device": {
		policy: constant{MaxDevices: &one},
		do: func(w *wakeful) {
			at(5)
			w.change("h00", "h00", attach)
			at(5.3)
			w.change("h00", "h00", detach)
			at(0.2)
			w.change("h40", "h40", attach)
		},
	},
	"also from a host without events": {
		policy: constant{MaxDevices: &one},
		do: func(w *wakeful) {
			at(5)
			w.change("h00", "h00", func(h *wakefulHost) { h.attached, h.deaf = true, true })
			at(5.3)
			w.change("h00", "", detach)
			at(0.2)
			w.change("h40", "h40", attach)
		},
	},
	"and from one where events end meanwhile": {
		policy: constant{MaxDevices: &one},
		do: func(w *wakeful) {
			at(5)
			w.change("h00", "h00", attach)
			at(5.3)
			w.change("h00", "h00", func(h *wakefulHost) { h.deaf = true })
			at(0.1)
			w.change("h00", "", detach)
			at(0.1)
			w.change("h40", "h40", attach)
		},
	},
	"a user with two has two": {
		policy: constant{MaxDevices: &one},
		do: func(w *wakeful) {
			at(10.3)
			w.change("h00", "h00", attach)
			at(0.2)
			w.change("h40", "h40", attach)
		},
		ended: []string{"10 h00 detach 0"},
	},
	"what was ended meanwhile is not ended again": {
		policy: warned(enforce.Warn{}),
		do: func(w *wakeful) {
			at(9.995) // the cycle's look sees it first
			w.change("h00", "", func(h *wakefulHost) { h.processes = []snapshot.PID{5} })
			at(0.3)
			w.starts("h01", 6)
		},
		ended: []string{"10 h00 5", "10 h01 6"},
	},
	"nor while its order is carried out": {
		policy: warned(enforce.Warn{}),
		do: func(w *wakeful) {
			w.change("h01", "", func(h *wakefulHost) { h.ignores = 3 * time.Second })
			at(10.3)
			w.starts("h01", 6)
		},
		ended: []string{"10 h01 6"},
	},
	"a finding of an early cycle stays": {
		policy: warned(enforce.Warn{For: time.Hour}),
		do:     func(w *wakeful) { at(10.3); w.starts("h00", 5) },
		events: map[string]int{"new h00": 1},
	},
	"one that is over is over once": {
		policy: warned(enforce.Warn{For: time.Hour}),
		do: func(w *wakeful) {
			at(5)
			w.starts("h00", 5)
			at(5.3)
			w.change("h00", "h00", func(h *wakefulHost) { h.processes = nil })
		},
		events: map[string]int{"new h00": 1, "over h00": 1},
	},
}

// What is judged while hosts are asked one after the other is right at each moment.
func TestWhatASpreadCycleJudges(t *testing.T) {
	for name, row := range spreadCases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, c := spreadFleet(row.policy)
				events := map[string]int{}
				c.Sinks = []controller.Sink{sinkOf(func(_ *controller.Round, list []enforce.Event) {
					for _, e := range list {
						if e.Kind == enforce.EventNew || e.Kind == enforce.EventOver {
							events[fmt.Sprintf("%s %s", e.Kind, e.Host)]++
						}
					}
				})}
				go row.do(w)
				ticks(t, c, 10*time.Second, 2)
				require.Equal(t, row.ended, w.ended)
				if row.events != nil {
					require.Equal(t, row.events, events)
				}
				time.Sleep(time.Minute)
			})
		})
	}
}
