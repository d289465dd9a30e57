package service

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/state/change"
)

// TestWhoTakesNothingGoesBehind: with any number of waits, nobody has free GPUs kept minute after minute.
func TestWhoTakesNothingGoesBehind(t *testing.T) {
	const now = 2 * time.Hour
	add := func(q *waits, id string, uid snapshot.UID, since time.Duration, asked *change.Change) {
		w := &wait{change: asked, events: make(chan Answer, 1)}
		w.ID, w.UID, w.GPUs, w.since = id, uid, 1, since
		q.list = append(q.list, w)
	}
	q := &waits{offers: []offer{{id: "m1", uid: 2, gpus: gpusOf(1), by: now - time.Second, told: true}}}
	add(q, "m1", 2, time.Minute, nil)
	add(q, "m2", 2, 2*time.Minute, nil)
	add(q, "m3", 2, 3*time.Minute, &change.Change{})
	add(q, "a", 1, time.Hour, nil)
	q.expire(nil, map[snapshot.DeviceIndex]gpus.State{0: gpus.Free}, now)
	require.Empty(t, q.offers)
	for i, want := range []time.Duration{now, now, 3 * time.Minute, time.Hour} {
		require.Equal(t, want, q.list[i].since, i)
	}
}

// TestAWaitNamesGPUs that a host can have, so that all waits fit into a snapshot.
func TestAWaitNamesGPUs(t *testing.T) {
	for _, suits := range [][]snapshot.DeviceIndex{{-1}, {1024}, make([]snapshot.DeviceIndex, 129)} {
		w := &wait{}
		w.ID, w.GPUs, w.Suits = "w", 1, suits
		require.Error(t, w.check(), suits)
	}
}
