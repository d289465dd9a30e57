package service

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// However many ask at once, the newest note about them is the one that stays.
func TestWhoAskedStays(t *testing.T) {
	s := Server{
		Run: t.TempDir(), Now: time.Now,
		Username: func(context.Context, snapshot.UID) snapshot.Username { return "somebody" },
	}
	for range 20 {
		var asking sync.WaitGroup
		for uid := range snapshot.UID(20) {
			asking.Go(func() { s.lookAgain(t.Context(), uid) })
		}
		asking.Wait()
		asked, err := AskedNote.Read(s.Run)
		require.NoError(t, err)
		require.Equal(t, s.askers.last, asked.Number)
	}
}
