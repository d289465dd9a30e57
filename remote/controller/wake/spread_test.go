package wake

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSpread(t *testing.T) {
	for name, row := range map[string]struct {
		hosts    int
		interval time.Duration
		want     time.Duration
	}{
		"none":                         {0, 10 * time.Second, 0},
		"one is not kept waiting":      {1, 10 * time.Second, 0},
		"a few":                        {2, 10 * time.Second, 25 * time.Millisecond},
		"a hundred":                    {100, 10 * time.Second, 25 * time.Millisecond},
		"within a part of an interval": {1000, 10 * time.Second, 2500 * time.Microsecond},
		"and of a short one":           {100, 5 * time.Second, 12500 * time.Microsecond},
		"at most some seconds":         {10000, time.Hour, 500 * time.Microsecond},
		"not at short intervals":       {100, time.Second, 0},
		"nor once":                     {100, 0, 0},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, Spread(row.hosts, row.interval)) })
	}
}

func TestListens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var none *Watch
		require.False(t, none.Listens("a"))
		r, hosts := newRinging("a", "b")
		w := Start(r)
		defer w.Close()
		w.Watch(hosts)
		synctest.Wait()
		require.False(t, w.Listens("a"), "it is not known whether it will be heard")
		require.False(t, w.Listens("c"))

		r.bells["a"] <- nil
		next(w)
		synctest.Wait()
		require.True(t, w.Listens("a"))
		require.False(t, w.Listens("b"))

		// It woke, and is asked after a pause.
		r.bells["a"] <- nil
		synctest.Wait()
		require.False(t, w.Listens("a"))
		next(w)
		synctest.Wait()
		require.True(t, w.Listens("a"))

		// Its events end, until it was heard again.
		r.bells["a"] <- errors.New("connection lost")
		synctest.Wait()
		require.False(t, w.Listens("a"))
		time.Sleep(time.Minute)
		w.Watch(hosts)
		synctest.Wait()
		require.False(t, w.Listens("a"))
		r.bells["a"] <- nil
		next(w)
		synctest.Wait()
		require.True(t, w.Listens("a"))

		time.Sleep(time.Second)
		require.True(t, w.Listens("b"), "it would have said if it couldn't")

		w.Watch(hosts[1:])
		require.False(t, w.Listens("a"))
	})
}
