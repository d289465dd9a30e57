package sharding

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The time in which this process was stopped says nothing about those that it started.
func TestAPauseOfTheParentDoesNotCount(t *testing.T) {
	for _, c := range []struct {
		name  string
		turn  time.Duration
		stuck bool
	}{{"it ran", time.Second, true}, {"it was stopped", time.Hour, false}} {
		t.Run(c.name, func(t *testing.T) {
			p := &process{started: time.Now().Add(-time.Hour)}
			r := &run{Options: Options{Clock: func() time.Duration { return 2 * time.Hour }}, processes: map[int]*process{0: p}}
			r.turned.Store(int64(2*time.Hour - c.turn))
			r.ignorePause()
			require.Equal(t, c.stuck, p.stuck())
		})
	}
}
