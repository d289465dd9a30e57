package controller_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
)

// A user is warned within the limit for all messages, in the person's name.
func TestWarn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, visited(), nil)
		defer func() { r.stop() }()
		for i := range 21 {
			got := r.do(operator.Action{Kind: operator.Warn, Host: "a", Device: index(0), EID: "9", User: "bob"})
			if i < 20 {
				require.Equal(t, "shown on 2 terminals", got)
			} else {
				require.Equal(t, "unable: the user was sent the messages of an hour already", got)
			}
		}
		require.Len(t, r.messages, 20)
		require.EqualValues(t, 1001, r.messages[0].UID)
		require.Equal(t, "alice (uid 1000), as root writes about device 0 of environment 9: it was asked for\nAsk your administrator.", r.messages[0].Text)
		require.Zero(t, r.sent())
		require.Len(t, r.history(), 21)
	})
}

// Many actions don't delay the cycles, and are refused when too many wait.
func TestAFloodOfActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := visited()
		r := run(t, h, nil)
		defer func() { r.stop() }()
		var wait sync.WaitGroup
		var mu sync.Mutex
		answers := make(map[string]int)
		for range 100 {
			for range 100 {
				wait.Go(func() {
					got := r.do(operator.Action{Kind: operator.Unexempt, User: "bob"})
					mu.Lock()
					defer mu.Unlock()
					answers[strings.SplitN(got, ":", 2)[0]]++
				})
			}
			time.Sleep(100 * time.Millisecond)
		}
		wait.Wait()
		require.Equal(t, 10000, answers["changed"]+answers["busy"], answers)
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, c := range r.cycles {
			require.Equal(t, time.Duration(i)*10*time.Second, c.Start.Sub(r.cycles[0].Start))
		}
	})
}

// TestWhoHasLeft: an action of a person who has left is not carried out, and one that comes after
// the end of the loop is refused.
func TestWhoHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := visited()
		r := run(t, h, nil)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		a := endBobs
		a.Schema, a.Reason = operator.ActionSchema, "r"
		_, err := r.queue.Do(gone, alice, a)
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Zero(t, r.sent())
		r.stop()
		require.Equal(t, "not-started: the controller has ended", r.do(endBobs))
		require.Zero(t, r.sent())
	})
}

// After a reload a name may be another machine: its processes are not those that were seen.
func TestAfterAReload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, queue, hangup := visited(), controller.NewQueue(), make(chan os.Signal)
		build := func() *controller.Controller {
			return &controller.Controller{
				Asker:  controller.Asker{Hosts: []remote.Host{{Name: "a"}}, Link: h, Fanout: 1},
				Policy: exempting{}, ActUnrecorded: true, Now: time.Now,
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			s := controller.Schedule{Interval: 10 * time.Second, Actions: queue, Hangup: hangup, Reload: build}
			ended <- controller.Loop(ctx, build(), s, func(controller.Cycle) error { return nil })
		}()
		r := &running{twoHosts: h, t: t, queue: queue}
		synctest.Wait()
		require.Contains(t, r.do(hold), "put enforcement on hold")
		hangup <- syscall.SIGHUP
		require.Equal(t, "unable: the hosts were read again, and have not been asked since", r.do(endBobs))
		time.Sleep(11 * time.Second)
		synctest.Wait()
		require.Equal(t, "terminated", r.do(endBobs))
		require.Contains(t, r.do(operator.Action{Kind: operator.Release}), "released", "the reload kept it")
		cancel()
		require.NoError(t, <-ended)
	})
}
