package web_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/web"
)

func TestWhoLeads(t *testing.T) {
	for name, row := range map[string]struct {
		election election.Shown
		want     string
	}{
		"it leads":     {election.Shown{Role: election.Leading, Since: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), Epoch: 12}, "<p>this controller leads since 2026-11-20T12:00:00Z (epoch 12)</p>"},
		"a standby":    {election.Shown{Role: election.Standby, Leader: "ann <b>"}, `standby; &#34;ann &lt;b&gt;&#34; leads`},
		"without etcd": {election.Shown{Role: election.Expired, Error: "no answer"}, "this one only watches until etcd answers"},
	} {
		f := newFleet(2, 2)
		f.feed.Configure(live.Options{Now: func() time.Time { return f.now }, Enforcing: true, Election: func() *election.Shown { return &row.election }})
		f.feed.Show(&f.cycle)
		body := get(t, web.New(f.feed, f.options()), "/").Body.String()
		require.Contains(t, body, row.want, name)
	}
}
