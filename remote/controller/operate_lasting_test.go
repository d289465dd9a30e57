package controller_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/remote/statedir"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// A hold stops the rules, and not the findings.
func TestHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := make(chan operator.State, 100)
		r := run(t, visited(), func(c *controller.Controller) {
			c.Policy = strict{}
			c.Store = storeFunc(func(saved controller.Saved) error {
				if len(saved.Operator) == 0 {
					return nil
				}
				time.Sleep(25 * time.Second)
				s, err := operator.Decode(saved.Operator, c.Now())
				kept <- s
				return err
			})
		})
		defer func() { r.stop() }()
		require.Contains(t, r.do(hold), "alice (uid 1000), as root put enforcement on hold: it was asked for")
		require.NotNil(t, (<-kept).Hold)
		require.NotNil(t, r.last().Hold, "the loop doesn't wait for the disk")
		before := r.received()
		require.Len(t, before, 1, "the cycle before")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Equal(t, before, r.received())
		round := r.last()
		require.NotNil(t, round.Hold)
		require.Empty(t, round.Plan.HeldHosts)
		require.Empty(t, round.Plan.HeldUsers)
		require.NotEmpty(t, round.Plan.Findings)
		for i := range round.Plan.Findings {
			f := &round.Plan.Findings[i]
			require.Equal(t, enforce.DecisionHold, f.Decision())
			require.Contains(t, f.BlockedBy, "by alice (uid 1000), as root: it was asked for")
		}
		require.Contains(t, r.do(operator.Action{Kind: operator.Release}), "released")
		time.Sleep(15 * time.Second)
		synctest.Wait()
		require.Greater(t, len(r.received()), len(before), "rules act again")
		require.Nil(t, r.last().Hold)
		var actions []string
		for _, e := range r.history() {
			if e.Action != "" {
				actions = append(actions, e.Action+" by "+e.By)
			}
		}
		require.Equal(t, []string{"hold by alice (uid 1000), as root", "release by alice (uid 1000), as root"}, actions)
	})
}

// An exemption ends by itself, which is recorded and an event.
func TestAnExemptionEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := visited()
		h.snapshot.Processes = h.snapshot.Processes[:1]
		h.snapshot.Environments = nil
		carol := h.snapshot.Processes[0]
		carol.PID, carol.Username, carol.UID = 50, "carol", new(snapshot.UID(1002))
		h.snapshot.Processes = append(h.snapshot.Processes, carol)
		r := run(t, h, func(c *controller.Controller) { c.Policy = strict{warn: enforce.Warn{For: 15 * time.Second}} })
		defer func() { r.stop() }()
		require.Contains(t, r.do(operator.Action{Kind: operator.Exempt, User: "bob", Rule: "idel", Hours: 1}), `did you mean "idle"?`)
		require.Contains(t, r.do(operator.Action{Kind: operator.Exempt, User: "bob", Hours: 0.01}), "exempted user bob until")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Len(t, r.last().Plan.Findings, 1, "carol's")
		require.Len(t, r.last().Exemptions, 1)
		require.Equal(t, snapshot.PID(50), h.received()[0].Terminate[0].Process.PID)
		time.Sleep(36 * time.Second)
		synctest.Wait()
		require.Empty(t, r.last().Exemptions)
		require.Len(t, r.last().Plan.Findings, 2)
		history := r.history()
		at := slices.IndexFunc(history, func(e audit.HistoryEntry) bool { return e.Action == "expired" })
		require.Equal(t, "bob", string(history[at].User))
		require.Contains(t, history[at].Why[0], "The exemption of user bob has ended")
	})
}

// Its end is an event, once, also in a cycle that can't be recorded.
func TestTheEndOfAnExemptionThatCannotBeRecorded(t *testing.T) {
	var said []string
	log := &full{Log: audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}}
	c := newFakeFleet(t).controller(log)
	c.Sinks = []controller.Sink{sinkOf(func(_ *controller.Round, events []enforce.Event) {
		for _, e := range events {
			said = append(said, e.Text)
		}
	})}
	c.Memory.Operator.Exemptions = policy.ExemptionList{{Who: policy.Who{User: "bob"}, Reason: "a deadline", By: "alice", Until: c.Now()}}
	require.ErrorIs(t, cycleOf(t.Context(), c, usual).Unrecorded, errFull)
	log.from = 1000
	require.NoError(t, cycleOf(t.Context(), c, usual).Unrecorded)
	require.Equal(t, []string{"The exemption of user bob has ended (a deadline by alice)"}, said)
}

// What operators asked for survives a controller that is killed.
func TestACrashAfterAnAction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, h := t.TempDir(), visited()
		store := open(t, dir)
		r := run(t, h, func(c *controller.Controller) {
			c.Store = store
		})
		defer func() { r.stop() }()
		require.Contains(t, r.do(hold), "on hold")
		require.Contains(t, r.do(operator.Action{Kind: operator.Exempt, User: "carol", Hours: 2}), "exempted")
		at := time.Now()
		memory := proctest.Try(store.Load(t.Context())).OK(t) // as a new process finds it
		require.Equal(t, "alice (uid 1000), as root", memory.Operator.Hold.By)
		require.WithinDuration(t, at.Add(2*time.Hour), memory.Operator.Exemptions[0].Until, 10*time.Second)

		require.NotNil(t, proctest.Try(store.LoadOperator(at.Add(500*time.Hour))).OK(t).Hold, "however long no controller ran")
	})
}

// What can't be read again is not forgotten.
func TestALostFileOfOperators(t *testing.T) {
	dir := t.TempDir()
	store := open(t, dir)
	state, err := store.LoadOperator(noonUTC)
	require.NoError(t, err)
	require.True(t, state.Empty(), "there never was one")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "operator.json"), []byte(`{"schema":"genv.controller.operator/1"`), 0o600))
	state, err = store.LoadOperator(noonUTC)
	require.ErrorContains(t, err, "damaged")
	require.NotNil(t, state.Hold)
	again := proctest.Try(store.LoadOperator(noonUTC)).OK(t)
	require.Equal(t, state, again, "until an operator releases it")
	require.NoError(t, store.KeepOperator(operator.State{}, noonUTC))
	again = proctest.Try(store.LoadOperator(noonUTC)).OK(t)
	require.True(t, again.Empty())

	second, err := statedir.Open(dir)
	require.ErrorIs(t, err, statedir.ErrInUse)
	defer second.Close()
	require.ErrorIs(t, second.KeepOperator(state, noonUTC), statedir.ErrInUse)
	require.NoError(t, store.Close())
}
