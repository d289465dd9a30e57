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

	"github.com/seed-3119e985/genv/enforce/guard/denials"
	"github.com/seed-3119e985/genv/enforce/guard/mode"
	"github.com/seed-3119e985/genv/enforce/guard/order"
	"github.com/seed-3119e985/genv/remote/agent/guarding"
)

var guardStart = order.At{Time: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), BootID: "b", SinceBoot: time.Hour}

// openGuarded is the guard of a machine on which a Keeper does nothing but be there.
func openGuarded(t *testing.T) (g *guarded, kept chan string) {
	t.Helper()
	kept = make(chan string, 10)
	g = &guarded{
		dir: filepath.Join(t.TempDir(), "run"), now: func() (order.At, error) { return guardStart, nil }, log: zerolog.Nop(),
		names: &userNames{now: time.Now, getent: func(_ context.Context, uid string) ([]byte, error) {
			if uid != "1002" {
				return nil, errors.New("no answer")
			}
			return []byte("bob:x:1002:1002::/home/bob:/bin/sh\n"), nil
		}},
		keep: func(ctx context.Context) {
			kept <- "begun"
			<-ctx.Done()
			kept <- "ended"
		},
	}
	return g, kept
}

func ask(m mode.Mode, controller string) guarding.Request {
	r := guarding.Request{ID: guarding.Prefix + controller, Order: order.Order{Mode: m, By: "genv remote enforce"}}
	if m != mode.Off {
		r.Order.Lease = time.Minute
	}
	return r
}

func TestAControllersOrderIsGivenAndKept(t *testing.T) {
	g, kept := openGuarded(t)
	for range 3 {
		answer, err := g.Order(t.Context(), ask(mode.Enforce, "c1"))
		require.NoError(t, err)
		require.Equal(t, guarding.State{}, answer.State, "nothing is known yet")
	}
	given, err := order.Read(g.dir)
	require.NoError(t, err)
	require.Equal(t, "controller c1", given.ID)
	require.Equal(t, time.Minute, given.Left(guardStart))
	require.Equal(t, "begun", <-kept)

	o := ask(mode.Enforce, "c1").Order
	require.NoError(t, order.WriteStatus(g.dir, order.Status{
		Mode: mode.Watch, Until: guardStart.Time.Add(time.Second), Reason: "users are unknown", Order: &o, Problems: []string{"users: no answer"},
	}))
	answer, err := g.Order(t.Context(), ask(mode.Enforce, "c1"))
	require.NoError(t, err)
	require.Equal(t, guarding.State{Mode: mode.Watch, LeftMS: 1000, Reason: "users are unknown", Problems: []string{"users: no answer"}}, answer.State)
	answer, err = g.Order(t.Context(), ask(mode.Watch, "c1"))
	require.NoError(t, err)
	require.Empty(t, answer.State.Reason, "it is about the order before")

	g.close()
	require.Equal(t, "ended", <-kept)
	require.Empty(t, kept, "one Keeper")
}

func TestWhichOrderHolds(t *testing.T) {
	for name, c := range map[string]struct {
		before string // who gave the one before, as its ID; empty for none
		mode   mode.Mode
		ask    guarding.Request
		id     string // of the order that holds then
		now    mode.Mode
	}{
		"the first":                             {"", 0, ask(mode.Watch, "c1"), "controller c1", mode.Watch},
		"over that of the host":                 {"local", mode.Enforce, ask(mode.Watch, "c1"), "controller c1", mode.Watch},
		"over that of another controller":       {"controller c2", mode.Enforce, ask(mode.Watch, "c1"), "controller c1", mode.Watch},
		"over another controller's off":         {"controller c2", mode.Off, ask(mode.Watch, "c1"), "controller c1", mode.Watch},
		"off ends its own":                      {"controller c1", mode.Enforce, ask(mode.Off, "c1"), "controller c1", mode.Off},
		"off leaves another controller's":       {"controller c2", mode.Enforce, ask(mode.Off, "c1"), "controller c2", mode.Enforce},
		"off leaves that of the host":           {"local", mode.Enforce, ask(mode.Off, "c1"), "local", mode.Enforce},
		"not over off on the host":              {"local", mode.Off, ask(mode.Enforce, "c1"), "local", mode.Off},
		"nor does watching":                     {"local", mode.Off, ask(mode.Watch, "c1"), "local", mode.Off},
		"over its own off":                      {"controller c1", mode.Off, ask(mode.Enforce, "c1"), "controller c1", mode.Enforce},
		"off of what was turned off anyway":     {"local", mode.Off, ask(mode.Off, "c1"), "local", mode.Off},
		"off although there never was an order": {"", 0, ask(mode.Off, "c1"), "", mode.Off},
	} {
		t.Run(name, func(t *testing.T) {
			g, _ := openGuarded(t)
			defer g.close()
			if c.before != "" {
				o := ask(c.mode, "x").Order
				o.By = "alice"
				_, err := order.Give(g.dir, o, c.before, guardStart)
				require.NoError(t, err)
			}
			_, err := g.Order(t.Context(), c.ask)
			require.NoError(t, err)
			given, err := order.Read(g.dir)
			if c.id == "" {
				require.ErrorIs(t, err, order.ErrNone)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.id, given.ID)
			require.Equal(t, c.now, given.Mode)
		})
	}
	g, _ := openGuarded(t)
	r := ask(mode.Enforce, "c1")
	r.ID = "local"
	_, err := g.Order(t.Context(), r)
	require.ErrorContains(t, err, "not that of a controller")
}

// TestAControllerLearnsThatTheHostTurnedItsGuardOff: in each answer, until that is over.
func TestAControllerLearnsThatTheHostTurnedItsGuardOff(t *testing.T) {
	g, kept := openGuarded(t)
	off, err := order.Give(g.dir, order.Order{Mode: mode.Off, By: "alice with `genv guard off`"}, "", guardStart)
	require.NoError(t, err)
	for _, m := range []mode.Mode{mode.Enforce, mode.Watch} {
		answer, err := g.Order(t.Context(), ask(m, "c1"))
		require.NoError(t, err)
		require.Equal(t, mode.Off, answer.State.Mode)
		require.Contains(t, answer.State.Reason, "turned off by alice with `genv guard off`")
		require.Contains(t, answer.State.Reason, "sudo genv guard resume")
	}
	require.Empty(t, kept, "there is nothing to keep")
	require.NoError(t, order.Withdraw(g.dir, off))
	answer, err := g.Order(t.Context(), ask(mode.Enforce, "c1"))
	require.NoError(t, err)
	require.Empty(t, answer.State.Reason)
	require.Equal(t, "begun", <-kept)
	g.close()
}

func TestDenialsSinceTheLastRequest(t *testing.T) {
	g, _ := openGuarded(t)
	defer g.close()
	r := ask(mode.Watch, "c1")
	_, err := g.Order(t.Context(), r)
	require.NoError(t, err)
	list := denials.New()
	list.Add(denials.Open{UID: 1002, Minor: 1, Denied: true}, guardStart.Time)
	list.Add(denials.Open{UID: 1003, Minor: 1}, guardStart.Time)
	require.NoError(t, denials.Write(g.dir, list))

	answer, err := g.Order(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, list.Epoch, answer.Epoch)
	require.Equal(t, uint64(2), answer.Seq)
	require.Equal(t, []guarding.Denial{{Denial: list.Denials[0], User: "bob"}, {Denial: list.Denials[1]}}, answer.Denials)
	require.Equal(t, answer, answer.Bounded())

	r.Epoch, r.Seq = answer.Epoch, 1
	answer, err = g.Order(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, answer.Denials, 1)
	r.Epoch, r.Seq = "another", 99
	answer, err = g.Order(t.Context(), r)
	require.NoError(t, err)
	require.Len(t, answer.Denials, 2, "the list began again")
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
