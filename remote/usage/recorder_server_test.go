package usage_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/testfleet/postgresserver"
	"github.com/seed-3119e985/genv/remote/usage"
	"github.com/seed-3119e985/genv/remote/usage/store"
)

// A real server is killed: that delays no cycle, and is said; once it is back nothing is missing.
func TestAServerThatIsLost(t *testing.T) {
	server := postgresserver.Start(t, "")
	options := store.Options{Fleet: "lab", In: time.UTC}
	open := func() (usage.Store, error) { return store.Open(context.Background(), server.URL(), options) }
	step, done := make(chan func(), 1), make(chan struct{})
	go func() { // with the time of the machine
		for do := range step {
			do()
			done <- struct{}{}
		}
	}()
	defer close(step)
	outside := func(do func()) { step <- do; <-done }
	synctest.Test(t, func(*testing.T) {
		r := start(t, open, 0)
		r.cycles(30)
		synctest.Wait()
		r.requireSaid()
		outside(func() {
			server.Kill()
			time.Sleep(time.Second) // the processes of its connections end a moment later
		})
		r.cycles(400)
		synctest.Wait()
		r.requireSaid("can't be written: it is tried again")
		outside(func() { server.Restart() })
		r.cycles(20)
		synctest.Wait()
		r.requireSaid("can't be written", "is written again: nothing is missing")
		r.Close()
	})
	s, err := store.OpenToRead(t.Context(), server.URL(), options)
	require.NoError(t, err)
	defer s.Close()
	mark, err := s.Mark(t.Context())
	require.NoError(t, err)
	kept, err := s.Report(t.Context(), usage.Query{Kind: usage.OfAll, Until: mark.Until})
	require.NoError(t, err)
	require.Equal(t, int64(4500), kept.Total.Attached)
	require.Zero(t, kept.Missing)
}
