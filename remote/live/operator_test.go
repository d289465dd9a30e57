package live_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/exemption"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func exempt(w exemption.Who) exemption.Exemption {
	return exemption.Exemption{Who: w, Reason: "deadline", By: "alice (uid 1000)", Created: noon, Until: noon.Add(time.Hour)}
}

func TestWhichGPUsAreExempt(t *testing.T) {
	one := snapshot.DeviceIndex(1)
	bobs := &gpus.GPU{Index: 0, Processes: []gpus.Process{{User: "bob"}}}
	attached := &gpus.GPU{Index: 1, Attached: []gpus.Attachment{{User: "bob"}}}
	free := &gpus.GPU{Index: 1}
	for _, row := range []struct {
		who  exemption.Who
		host snapshot.Hostname
		gpu  *gpus.GPU
		want bool
	}{
		{exemption.Who{User: "bob"}, "a", bobs, true},
		{exemption.Who{User: "bob"}, "a", attached, true},
		{exemption.Who{User: "bob"}, "a", free, false},
		{exemption.Who{User: "carol"}, "a", bobs, false},
		{exemption.Who{User: "bob", Host: "a"}, "a", bobs, true},
		{exemption.Who{User: "bob", Host: "a"}, "b", bobs, false},
		{exemption.Who{Host: "a"}, "a", free, true},
		{exemption.Who{Host: "a", Device: &one}, "a", free, true},
		{exemption.Who{Host: "a", Device: &one}, "a", bobs, false},
	} {
		f := live.Fleet{Exemptions: exemption.List{exempt(row.who)}}
		require.Equal(t, row.want, f.Exempt(row.host, row.gpu) != nil, row)
	}
}

// A hold and exemptions are in the document, and events name the person.
func TestWhatOperatorsAskedFor(t *testing.T) {
	feed := live.NewFeed(live.Options{Now: func() time.Time { return noon }, Enforcing: true})
	cycle := &controller.Cycle{
		Number: 3, Cluster: snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: &snapshot.Snapshot{}}}},
		Hold:       &operator.OnHold{Since: noon, By: "alice (uid 1000)", Reason: "<b>"},
		Exemptions: exemption.List{exempt(exemption.Who{User: "bob"})},
	}
	report := enforce.Report{Terminate: []enforce.Termination{{
		Process: snapshot.Process{PID: 5, Username: "bob"}, Because: []string{"operator/1"}, Why: []string{"Requested by alice (uid 1000): r"},
	}}}
	outcomes := []enforce.Outcome{{PID: 5, Status: enforce.StatusTerminated}}
	feed.Consume(cycle, []enforce.Event{
		{Kind: controller.EventOperator, Host: "a", Text: "alice (uid 1000) put enforcement on hold: <b>"},
		{Kind: enforce.EventOutcome, Host: "a", Report: &report, Outcomes: outcomes},
	})
	events := feed.Events(0)
	require.Len(t, events, 2)
	require.Equal(t, "operator", string(events[0].Kind))
	require.Equal(t, "alice (uid 1000) put enforcement on hold: <b>", events[0].Text)
	require.Equal(t, "process 5 (user bob): terminated. Requested by alice (uid 1000): r", events[1].Text)
	require.Equal(t, "bob", string(events[1].User))

	data, err := json.Marshal(feed.Fleet())
	require.NoError(t, err)
	var document struct {
		Hold       map[string]any
		Exemptions []map[string]any
	}
	require.NoError(t, json.Unmarshal(data, &document))
	require.Equal(t, map[string]any{"since": "2026-11-20T12:00:00Z", "by": "alice (uid 1000)", "reason": "<b>"}, document.Hold)
	require.Equal(t, []map[string]any{{
		"user": "bob", "reason": "deadline", "by": "alice (uid 1000)", "created": "2026-11-20T12:00:00Z", "until": "2026-11-20T13:00:00Z",
	}}, document.Exemptions)

	cycle.Hold, cycle.Exemptions = nil, nil
	feed.Show(cycle)
	data, err = json.Marshal(feed.Fleet())
	require.NoError(t, err)
	require.Contains(t, string(data), `"exemptions":[]`)
	require.NotContains(t, string(data), `"hold"`)
}
