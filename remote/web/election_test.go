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
		shown    bool
	}{
		"it leads":     {election.Shown{Role: election.Leading, Epoch: 12}, "leads", false},
		"a standby":    {election.Shown{Role: election.Standby, Leader: "ann <b>"}, `standby; &#34;ann &lt;b&gt;&#34; leads`, true},
		"without etcd": {election.Shown{Role: election.Expired, Error: "no answer"}, "this one only watches until etcd answers", true},
	} {
		f := newFleet(2, 2)
		f.feed.Configure(live.Options{Now: func() time.Time { return f.now }, Enforcing: true, Election: func() *election.Shown { return &row.election }})
		f.feed.Show(&f.cycle)
		body := get(t, web.New(f.feed, f.options()), "/").Body.String()
		if row.shown {
			require.Contains(t, body, row.want, name)
		} else {
			require.NotContains(t, body, row.want, name)
		}
	}
}
