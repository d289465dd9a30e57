package kernel_test

import (
	"math"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/guard/kernel"
	"github.com/seed-3119e985/genv/snapshot"
)

// BenchmarkOpen is the cost of an open in another process: without a guard, allowed by one
// and denied by one, and how many times as long the latter take. The three take turns, and
// the best turn of each counts, since the machine may be busy with other work.
func BenchmarkOpen(b *testing.B) {
	type place struct {
		*process
		node string
		best float64
	}
	places := make([]place, 3)
	for i := range places {
		s := newSite(b)
		node := filepath.Join(s.dev, "null")
		makeNode(b, node, nullMajor, 3)
		places[i] = place{process: s.user(1001 + i), node: node, best: math.Inf(1)}
		if i == 0 {
			continue
		}
		o := s.options()
		o.Unpinned = true
		g := s.openWith(kernel.WithMajor(o, nullMajor))
		require.NoError(b, g.SetMinors(guard.MinorsOf(3), guard.Minors{}))
		require.NoError(b, g.SetAllowed(map[snapshot.UID]guard.Minors{1002: guard.MinorsOf(3)}))
		set(b, g, guard.Enforce, time.Hour)
	}
	const opens = 300 // less than a millisecond: most turns are then without another process on the core
	for b.Loop() {
		for i := range places {
			p := &places[i]
			ns, err := strconv.ParseFloat(p.ask("time "+p.node+" "+strconv.Itoa(opens)), 64)
			require.NoError(b, err)
			p.best = min(p.best, ns/opens)
		}
	}
	b.ReportMetric(places[0].best, "unguarded-ns")
	b.ReportMetric(places[1].best, "guarded-ns")
	b.ReportMetric(places[1].best/places[0].best, "guarded-ratio")
	b.ReportMetric(places[2].best/places[0].best, "denied-ratio")
}
