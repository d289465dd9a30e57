package host

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var guardStart = guard.At{Time: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), BootID: "b", SinceBoot: time.Hour}

// openGuarded is the guard of a machine on which a Keeper does nothing but be there.
func openGuarded(t *testing.T) (g *guarded, kept chan string) {
	t.Helper()
	kept = make(chan string, 10)
	g = &guarded{
		dir: filepath.Join(t.TempDir(), "run"), now: func() (guard.At, error) { return guardStart, nil }, log: zerolog.Nop(),
		keep: func(ctx context.Context) {
			kept <- "begun"
			<-ctx.Done()
			kept <- "ended"
		},
	}
	return g, kept
}

func ask(m guard.Mode, controller string) agent.GuardRequest {
	r := agent.GuardRequest{ID: agent.GuardPrefix + controller, Order: guard.Order{Mode: m, By: "genv remote enforce"}}
	if m != guard.Off {
		r.Order.LeaseMS = 60_000
	}
	return r
}

func TestAControllersOrderIsGivenAndKept(t *testing.T) {
	g, kept := openGuarded(t)
	for range 3 {
		answer := proctest.Try(g.Order(t.Context(), ask(guard.Enforce, "c1"))).OK(t)
		require.Equal(t, agent.GuardState{}, answer.State, "nothing is known yet")
	}
	given := proctest.Try(guard.ReadOrder(g.dir)).OK(t)
	require.Equal(t, "controller c1", given.ID)
	require.Equal(t, time.Minute, given.Left(guardStart))
	require.Equal(t, "begun", <-kept)

	o := ask(guard.Enforce, "c1").Order
	require.NoError(t, guard.WriteStatus(g.dir, guard.Status{
		Mode: guard.Watch, Until: guardStart.Time.Add(time.Second), Reason: "users are unknown", Order: &o, Problems: []string{"users: no answer"},
	}))
	answer := proctest.Try(g.Order(t.Context(), ask(guard.Enforce, "c1"))).OK(t)
	require.Equal(t, agent.GuardState{Mode: guard.Watch, LeftMS: 1000, Reason: "users are unknown", Problems: []string{"users: no answer"}}, answer.State)
	answer = proctest.Try(g.Order(t.Context(), ask(guard.Watch, "c1"))).OK(t)
	require.Empty(t, answer.State.Reason, "it is about the order before")

	g.close()
	require.Equal(t, "ended", <-kept)
	require.Empty(t, kept, "one Keeper")
}

func TestWhichOrderHolds(t *testing.T) {
	for name, c := range map[string]struct {
		before string // who gave the one before, as its ID; empty for none
		mode   guard.Mode
		ask    agent.GuardRequest
		id     string // of the order that holds then
		now    guard.Mode
	}{
		"the first":                             {"", 0, ask(guard.Watch, "c1"), "controller c1", guard.Watch},
		"over that of the host":                 {"local", guard.Enforce, ask(guard.Watch, "c1"), "controller c1", guard.Watch},
		"over that of another controller":       {"controller c2", guard.Enforce, ask(guard.Watch, "c1"), "controller c1", guard.Watch},
		"over another controller's off":         {"controller c2", guard.Off, ask(guard.Watch, "c1"), "controller c1", guard.Watch},
		"off ends its own":                      {"controller c1", guard.Enforce, ask(guard.Off, "c1"), "controller c1", guard.Off},
		"off leaves another controller's":       {"controller c2", guard.Enforce, ask(guard.Off, "c1"), "controller c2", guard.Enforce},
		"off leaves that of the host":           {"local", guard.Enforce, ask(guard.Off, "c1"), "local", guard.Enforce},
		"not over off on the host":              {"local", guard.Off, ask(guard.Enforce, "c1"), "local", guard.Off},
		"nor does watching":                     {"local", guard.Off, ask(guard.Watch, "c1"), "local", guard.Off},
		"over its own off":                      {"controller c1", guard.Off, ask(guard.Enforce, "c1"), "controller c1", guard.Enforce},
		"off of what was turned off anyway":     {"local", guard.Off, ask(guard.Off, "c1"), "local", guard.Off},
		"off although there never was an order": {"", 0, ask(guard.Off, "c1"), "", guard.Off},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := openGuarded(t)
			defer g.close()
			if c.before != "" {
				o := ask(c.mode, "x").Order
				o.By = "alice"
				proctest.Try(guard.GiveOrder(g.dir, o, c.before, guardStart)).OK(t)
			}
			proctest.Try(g.Order(t.Context(), c.ask)).OK(t)
			given, err := guard.ReadOrder(g.dir)
			if c.id == "" {
				require.ErrorIs(t, err, guard.ErrNoOrder)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.id, given.ID)
			require.Equal(t, c.now, given.Mode)
		})
	}
	g, _ := openGuarded(t)
	r := ask(guard.Enforce, "c1")
	r.ID = "local"
	require.ErrorContains(t, proctest.Try(g.Order(t.Context(), r)).Err, "not that of a controller")
}

// TestAControllerLearnsThatTheHostTurnedItsGuardOff: in each answer, until that is over.
func TestAControllerLearnsThatTheHostTurnedItsGuardOff(t *testing.T) {
	g, kept := openGuarded(t)
	off := proctest.Try(guard.GiveOrder(g.dir, guard.Order{Mode: guard.Off, By: "alice with `genv guard off`"}, "", guardStart)).OK(t)
	for _, m := range []guard.Mode{guard.Enforce, guard.Watch} {
		answer := proctest.Try(g.Order(t.Context(), ask(m, "c1"))).OK(t)
		require.Equal(t, guard.Off, answer.State.Mode)
		require.Contains(t, answer.State.Reason, "turned off by alice with `genv guard off`")
		require.Contains(t, answer.State.Reason, "sudo genv guard resume")
	}
	require.Empty(t, kept, "there is nothing to keep")
	require.NoError(t, guard.WithdrawOrder(g.dir, off))
	require.Empty(t, proctest.Try(g.Order(t.Context(), ask(guard.Enforce, "c1"))).OK(t).State.Reason)
	require.Equal(t, "begun", <-kept)
	g.close()
}

func TestTheNumberOfDenials(t *testing.T) {
	g, _ := openGuarded(t)
	defer g.close()
	proctest.Try(g.Order(t.Context(), ask(guard.Watch, "c1"))).OK(t)
	require.NoError(t, guard.WriteStatus(g.dir, guard.Status{Mode: guard.Watch}))
	list := guard.NewDenials()
	list.Add(guard.Denial{UID: 1002, Minor: 1, Denied: true}, guardStart.Time)
	list.Add(guard.Denial{UID: 1003, Minor: 1}, guardStart.Time)
	require.NoError(t, guard.WriteDenials(g.dir, list))
	answer := proctest.Try(g.Order(t.Context(), ask(guard.Watch, "c1"))).OK(t)
	require.EqualValues(t, 2, answer.State.Denied)
	require.Equal(t, answer, answer.Bounded())
}

func TestKeepingTheGuardIsTriedAgain(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	tried := 0
	keepTrying(ctx, zerolog.New(&out), func(ctx context.Context) error {
		tried++
		switch tried {
		case 1, 2:
			return errors.New("the folder can't be used")
		case 3:
			cancel()
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	require.Equal(t, 3, tried)
	require.Equal(t, 1, strings.Count(out.String(), "the folder can't be used"), "it is said once")
}
