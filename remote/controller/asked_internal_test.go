package controller

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller/wake"
	"github.com/seed-3119e985/genv/snapshot"
)

// Of a host that woke during a full cycle the look counts that was asked for last.
func TestTheNewestLookCounts(t *testing.T) {
	full, early, begun := &snapshot.Snapshot{BootID: "full"}, &snapshot.Snapshot{BootID: "early"}, time.Now()
	for name, row := range map[string]struct {
		woke []time.Duration // looks of events, since the cycle asked
		err  error           // of the cycle's look
		want string
		at   time.Duration
	}{
		"it didn't wake":         {nil, nil, "full", 0},
		"before the cycle asked": {[]time.Duration{-time.Second}, nil, "full", 0},
		"after it":               {[]time.Duration{-time.Second, time.Second}, nil, "early", time.Second},
		"the cycle's own look":   {[]time.Duration{0}, nil, "full", 0},
		"it failed":              {[]time.Duration{time.Second}, errors.New("no route"), "full", 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := remote.Host{Name: "a"}
			a := &asked{at: map[string]time.Time{"a": begun}, newest: map[string]wake.Look{}}
			for _, d := range row.woke {
				a.woke([]wake.Look{{Host: h, Snapshot: early, Asked: begun.Add(d)}})
			}
			cluster := snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: full, Err: row.err}}}
			a.renew([]remote.Host{h}, &cluster)
			require.Equal(t, row.want, cluster.Hosts[0].Snapshot.BootID)
			require.Equal(t, begun.Add(row.at), a.at["a"])
		})
	}
}
