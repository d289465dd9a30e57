package live_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestEventsOfAFinding say what they are about, also when it is over, and each thing once: that
// a finding is acted on is EventDue, which comes with EventNew or EventChanged.
func TestEventsOfAFinding(t *testing.T) {
	finding := &enforce.Finding{ID: "f", Rule: enforce.RuleNonEnvProcesses, Host: "a", PID: 9, User: "alice"}
	event := func(kind enforce.EventKind, decision enforce.Decision) enforce.Event {
		return enforce.Event{Kind: kind, Host: "a", ID: "f", Finding: finding, Decision: decision}
	}
	s := newStage(answered("a", "alice"))
	s.run(func(c *controller.Round) { c.Plan.Findings = []enforce.Finding{*finding} }, event(enforce.EventNew, enforce.DecisionWait))
	s.run(nil, event(enforce.EventChanged, enforce.DecisionAct), event(enforce.EventDue, enforce.DecisionAct))
	o := &order.Order{ID: "r", Terminate: []order.Termination{{ // as 1.4.3 reports it
		Process: snapshot.Process{PID: 9}, Reasons: order.Reasons{Because: []string{"f"}, Why: []string{finding.Line()}, Judged: []string{"process 9"}},
	}}}
	s.run(nil, enforce.Event{
		Kind: enforce.EventOutcome, Host: "a", Order: o, Findings: []enforce.Finding{*finding},
		Outcomes: []order.Outcome{{PID: 9, Status: order.StatusTerminated}},
	})
	s.run(nil, enforce.Event{ // a host that says something else than was asked
		Kind: enforce.EventOutcome, Host: "a", Order: o, Findings: []enforce.Finding{*finding},
		Outcomes: []order.Outcome{{PID: 10, Status: order.StatusTerminated}},
	})
	over := enforce.Event{Kind: enforce.EventOver, Host: "a", ID: "f"}
	s.run(func(c *controller.Round) { c.Plan.Findings = nil }, over)
	s.run(nil, over) // as after a restart: the finding was of another run

	var kinds []enforce.EventKind
	list := s.Events(0)
	for i := range list {
		kinds = append(kinds, list[i].Kind)
	}
	require.Equal(t, []enforce.EventKind{enforce.EventNew, enforce.EventDue, enforce.EventOutcome, enforce.EventOutcome, enforce.EventOver, enforce.EventOver}, kinds)
	require.Equal(t, finding.Line(), list[2].Why)
	require.Equal(t, finding.User, list[2].User, "it is on the page of who lost the process")
	require.Equal(t, &audit.HistoryEntry{
		ID: audit.DecisionID("r", 9, "", nil), Time: list[2].Time, Host: "a", Text: o.Terminate[0].String(), Status: order.StatusTerminated,
		Why: []string{finding.Line()}, Judged: []string{"process 9"},
	}, list[2].Record)
	require.Nil(t, list[3].Record, "it isn't about that process")
	require.Equal(t, "no longer there: "+finding.Line(), list[4].Text)
	require.Equal(t, snapshot.Username("alice"), list[4].User)
	require.Equal(t, snapshot.PID(9), list[4].PID)
	require.Equal(t, enforce.RuleNonEnvProcesses, list[4].Rule)
	require.Equal(t, "no longer there", list[5].Text)
	require.Empty(t, list[5].User)
}

// TestAllGPUs: those of a host that failed are not listed, whatever was known of them.
func TestAllGPUs(t *testing.T) {
	failure := remote.Failure{Host: "gpu-02", Class: remote.Unreachable}
	fleet := live.FleetState{
		Hosts: []live.FleetHost{
			{Name: "gpu-02", Failure: &failure, GPUs: []gpus.GPU{{State: gpus.Unknown}}},
			{Name: "gpu-01", GPUs: []gpus.GPU{{State: gpus.Free}, {Index: 1, State: gpus.Busy}}},
			{Name: "gpu-03", Failure: &remote.Failure{Host: "gpu-03"}, GPUs: []gpus.GPU{{State: gpus.Free}}},
		},
		Failed: []remote.Failure{failure},
	}
	list := fleet.AllGPUs()
	require.Equal(t, []int{2, 1, 1}, []int{list.Total, list.Free, len(list.Hosts)})
	require.Equal(t, []remote.Failure{failure}, list.Failed)
}

func TestNoGPUs(t *testing.T) {
	document := proctest.Try(json.Marshal(new(live.FleetState).AllGPUs())).OK(t)
	require.JSONEq(t, `{"schema":"genv.remote.gpus/1","total":0,"free":0,"hosts":[],"failed":[],"duplicates":[]}`, string(document))
}

func TestWhatIsSaidOfAGuard(t *testing.T) {
	const off, watch, enforce, unable = snapshot.GuardOff, snapshot.GuardWatch, snapshot.GuardEnforce, snapshot.GuardUnable
	for _, c := range []struct {
		guard   live.HostGuard
		want    string
		differs bool
	}{
		{live.HostGuard{}, "", false},
		{live.HostGuard{Mode: off}, "", false},
		{live.HostGuard{Mode: off, Reason: "it was turned off by root"}, "", false},
		{live.HostGuard{Mode: watch}, "watch", false},
		{live.HostGuard{Mode: enforce, Policy: enforce}, "enforce", false},
		{live.HostGuard{Policy: watch}, "unknown, although the policy says watch", true},
		{live.HostGuard{Mode: off, Policy: enforce, Reason: "guard.off exists"}, "off, although the policy says enforce: guard.off exists", true},
		{live.HostGuard{Mode: watch, Policy: enforce, Reason: "no room"}, "watch, although the policy says enforce: no room", true},
		{live.HostGuard{Mode: unable, Policy: enforce, Reason: "no BPF"}, "unable, although the policy says enforce: no BPF", true},
		{live.HostGuard{Mode: unable, Reason: "no BPF"}, "unable: no BPF", true},
	} {
		require.Equal(t, c.want, c.guard.String(), "%+v", c.guard)
		require.Equal(t, c.differs, c.guard.Differs(), "%+v", c.guard)
	}
}

// guarded is a fleet of which a has no guard, b is not able, c says nothing, and d fails.
func guarded(t *testing.T, file string) *stage {
	s := newStage(answered("a", "alice"), answered("b", "bob"), answered("c", "carol"), answered("d", "dave"))
	f := proctest.Try(policy.Parse("policy.yaml", []byte(file))).OK(t)
	s.Configure(live.Options{Now: func() time.Time { return s.now }, Interval: 10 * time.Second, Enforcing: true, Policy: f})
	on, no := true, false
	hosts := s.round.Cluster.Hosts
	hosts[0].Snapshot.Guard, hosts[0].Snapshot.Service = &snapshot.Guard{Mode: snapshot.GuardOff}, &no
	hosts[1].Snapshot.Guard, hosts[1].Snapshot.Service = &snapshot.Guard{Mode: snapshot.GuardUnable, Reason: "turned off by alice"}, &on
	hosts[3].Snapshot.Guard, hosts[3].Snapshot.Service = &snapshot.Guard{Mode: snapshot.GuardEnforce}, &on
	s.run(nil)
	s.run(func(c *controller.Round) { c.Cluster.Hosts[3] = failed("d") })
	return s
}

func guardsOf(f *live.FleetState) (list []live.HostGuard) {
	for i := range f.Hosts {
		list = append(list, f.Hosts[i].Guard)
	}
	return list
}

func TestGuardsOfAFleet(t *testing.T) {
	const enforce = snapshot.GuardEnforce
	f := guarded(t, "defaults: {guard: enforce}\n").Fleet()
	require.Equal(t, []live.HostGuard{
		{Mode: snapshot.GuardOff, Policy: enforce},
		{Mode: snapshot.GuardUnable, Reason: "turned off by alice", Policy: enforce},
		{Policy: enforce},
		{}, // of one that fails nothing is known, and it is said elsewhere
	}, guardsOf(f))
	require.False(t, *f.Hosts[0].Service)
	require.True(t, *f.Hosts[1].Service)
	require.Nil(t, f.Hosts[2].Service, "unknown is not off")
	require.Nil(t, f.Hosts[3].Service)
	text := proctest.Try(json.Marshal(f.Hosts[2])).OK(t)
	require.Contains(t, string(text), `"guard":{"policy":"enforce"}`)

	f = guarded(t, "defaults: {guard: off}\n").Fleet()
	require.Equal(t, live.HostGuard{Mode: snapshot.GuardOff}, f.Hosts[0].Guard)
	text = proctest.Try(json.Marshal(f.Hosts[2])).OK(t)
	require.NotContains(t, string(text), "guard")
	require.NotContains(t, string(text), "service")
}

// TestADryRunOrdersNoGuard: nor does one that only watches. What a host does is known all the same.
func TestADryRunOrdersNoGuard(t *testing.T) {
	s := guarded(t, "defaults: {guard: watch}\n")
	f := s.run(func(c *controller.Round) { c.DryRun = true })
	require.Equal(t, []live.HostGuard{{Mode: snapshot.GuardOff}, {Mode: snapshot.GuardUnable, Reason: "turned off by alice"}, {}, {}}, guardsOf(f))
}

func TestAnotherModeIsAChange(t *testing.T) {
	s := guarded(t, "defaults: {guard: enforce}\n")
	before := s.Fleet().Hosts
	s.run(nil)
	require.Equal(t, before[0].Changed, s.Fleet().Hosts[0].Changed)
	f := s.run(func(c *controller.Round) {
		next := *c.Cluster.Hosts[0].Snapshot
		next.Guard = &snapshot.Guard{Mode: snapshot.GuardEnforce}
		c.Cluster.Hosts[0].Snapshot = &next
	})
	require.Greater(t, f.Hosts[0].Changed, before[0].Changed)
	require.Empty(t, s.For("").Fleet().Hosts[1].Guard.Reason, "it may name somebody")
	require.Equal(t, snapshot.GuardUnable, s.For("").Fleet().Hosts[1].Guard.Mode)
}

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func exempt(w policy.Who) policy.Exemption {
	return policy.Exemption{Who: w, Reason: "deadline", By: "alice (uid 1000)", Created: noon, Until: noon.Add(time.Hour)}
}

func TestWhichGPUsAreExempt(t *testing.T) {
	one := snapshot.DeviceIndex(1)
	bobs := &gpus.GPU{Index: 0, Processes: []gpus.Process{{User: "bob"}}}
	attached := &gpus.GPU{Index: 1, Attached: []gpus.Attachment{{User: "bob"}}}
	free := &gpus.GPU{Index: 1}
	for _, row := range []struct {
		who  policy.Who
		host snapshot.Hostname
		gpu  *gpus.GPU
		want bool
	}{
		{policy.Who{User: "bob"}, "a", bobs, true},
		{policy.Who{User: "bob"}, "a", attached, true},
		{policy.Who{User: "bob"}, "a", free, false},
		{policy.Who{User: "carol"}, "a", bobs, false},
		{policy.Who{User: "bob", Host: "a"}, "a", bobs, true},
		{policy.Who{User: "bob", Host: "a"}, "b", bobs, false},
		{policy.Who{Host: "a"}, "a", free, true},
		{policy.Who{Host: "a", Device: &one}, "a", free, true},
		{policy.Who{Host: "a", Device: &one}, "a", bobs, false},
	} {
		f := live.FleetState{Exemptions: policy.ExemptionList{exempt(row.who)}}
		e, begun := f.Exempt(row.host, row.gpu)
		require.Equal(t, []bool{row.want, row.want}, []bool{e != nil, begun}, row)
	}
	later := exempt(policy.Who{User: "bob"})
	later.From = noon.Add(time.Minute)
	f := live.FleetState{Time: noon, Exemptions: policy.ExemptionList{later}}
	e, begun := f.Exempt("a", bobs)
	require.True(t, e != nil && !begun)
}

// A hold and exemptions are in the document, and events name the person.
func TestWhatOperatorsAskedFor(t *testing.T) {
	feed := live.NewFeed(live.Options{Now: func() time.Time { return noon }, Enforcing: true})
	round := &controller.Round{
		Number: 3, Cluster: snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: &snapshot.Snapshot{}}}},
		Hold:       &operator.OnHold{Since: noon, By: "alice (uid 1000)", Reason: "<b>"},
		Exemptions: policy.ExemptionList{exempt(policy.Who{User: "bob"})},
	}
	feed.Consume(round, []enforce.Event{
		{Kind: controller.EventOperator, Host: "a", Text: "alice (uid 1000) put enforcement on hold: <b>"},
	})
	events := feed.Events(0)
	require.Len(t, events, 1)
	require.Equal(t, "operator", string(events[0].Kind))
	require.Equal(t, "alice (uid 1000) put enforcement on hold: <b>", events[0].Text)

	data := proctest.Try(json.Marshal(feed.Fleet())).OK(t)
	var document struct {
		Hold       map[string]any
		Exemptions []map[string]any
	}
	require.NoError(t, json.Unmarshal(data, &document))
	require.Equal(t, map[string]any{"since": "2026-11-20T12:00:00Z", "by": "alice (uid 1000)", "reason": "<b>"}, document.Hold)
	require.Equal(t, []map[string]any{{
		"user": "bob", "reason": "deadline", "by": "alice (uid 1000)", "created": "2026-11-20T12:00:00Z", "until": "2026-11-20T13:00:00Z",
	}}, document.Exemptions)

	round.Hold, round.Exemptions = nil, nil
	feed.Consume(round.AtEnd(), nil)
	data = proctest.Try(json.Marshal(feed.Fleet())).OK(t)
	require.Contains(t, string(data), `"exemptions":[]`)
	require.NotContains(t, string(data), `"hold"`)
}
