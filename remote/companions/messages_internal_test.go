package companions

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// lastingStep is what happens in a cycle, and what is said then.
type lastingStep struct {
	after  time.Duration
	event  []enforce.Event
	exempt policy.ExemptionList
	hold   *operator.OnHold
	want   string // a part of what is said; empty for nothing
	over   bool   // whether `genv why` there hears that the warning is over
}

const exempted, held, ended = "exempt until ", "while enforcement is on hold, as it is since ", "It is not exempt any more. "

// TestWhatOperatorsDoAboutWarnings: those for whom a warning is running are told of an exemption, of its end, and of a
// hold of over an hour; no one else is.
func TestWhatOperatorsDoAboutWarnings(t *testing.T) {
	now := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	at := func(d time.Duration) string { return notify.Clock(now.Add(d)) }
	cluster := snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: &snapshot.Snapshot{Processes: []snapshot.Process{
		{PID: 5, UID: new(snapshot.UID(1001)), Username: "bob"}, {PID: 6, UID: new(snapshot.UID(1002)), Username: "eve"},
	}}}}}
	finding := func(pending bool) *enforce.Finding {
		return &enforce.Finding{
			PrivateCommand: "sh -c private", ID: "idle/a/5", Rule: enforce.RuleIdle, Host: "a", PID: 5, User: "bob", Pending: pending, Due: now.Add(2 * time.Hour),
			Terminate: []enforce.ProcessRef{{Host: "a", PID: 5}},
		}
	}
	warn := enforce.Event{Kind: enforce.EventNotify, ID: "idle/a/5", Host: "a", Finding: finding(true)}
	act := enforce.Event{Kind: enforce.EventNotify, ID: "idle/a/5", Host: "a", Finding: finding(false)}
	over := enforce.Event{Kind: enforce.EventOver, ID: "idle/a/5", Host: "a"}
	second := enforce.Event{Kind: enforce.EventNotify, ID: "idle/a/5/2", Host: "a", Finding: finding(true)}
	second.Finding.ID = second.ID
	exempt := func(w policy.Who) policy.ExemptionList {
		return policy.ExemptionList{{Who: w, Reason: "paper deadline", By: "anna", Until: now.Add(5 * time.Hour)}}
	}
	bob := exempt(policy.Who{User: "bob"})
	hold := &operator.OnHold{Since: now.Add(-30 * time.Minute), By: "anna", Reason: "repair"}
	for name, steps := range map[string][]lastingStep{
		"exempt, and not any more": {
			{event: []enforce.Event{warn}, want: "Unless this changes, in 2h process 5 will be ended."},
			{event: []enforce.Event{over}, exempt: bob, want: "Nothing is done about it, since it is " + exempted + at(5*time.Hour) + ": paper deadline."},
			{after: 5 * time.Hour, event: []enforce.Event{warn}, want: ended},
			{after: 6 * time.Hour, event: []enforce.Event{act}, want: "Process 5 gets SIGTERM now"},
		},
		"exempt from this rule":      {{event: []enforce.Event{warn}, want: "2h"}, {event: []enforce.Event{over}, exempt: exempt(policy.Who{Host: "a", Rule: "idle"}), want: exempted}},
		"another rule":               {{event: []enforce.Event{warn}, want: "2h"}, {event: []enforce.Event{over}, exempt: exempt(policy.Who{User: "bob", Rule: "env-memory"}), over: true}},
		"somebody else":              {{event: []enforce.Event{warn}, want: "2h"}, {event: []enforce.Event{over}, exempt: exempt(policy.Who{User: "eve"}), over: true}},
		"another host":               {{event: []enforce.Event{warn}, want: "2h"}, {event: []enforce.Event{over}, exempt: exempt(policy.Who{User: "bob", Host: "b"}), over: true}},
		"a GPU, perhaps another one": {{event: []enforce.Event{warn}, want: "2h"}, {event: []enforce.Event{over}, exempt: exempt(policy.Who{Host: "a", Device: new(snapshot.DeviceIndex(0))}), over: true}},
		"it ended by itself":         {{event: []enforce.Event{warn}, want: "2h"}, {event: []enforce.Event{over}, over: true}, {event: []enforce.Event{over}, exempt: bob}},
		"one of two parts went":      {{event: []enforce.Event{warn, second}, want: "2h"}, {event: []enforce.Event{act}, want: "now"}, {event: []enforce.Event{{Kind: enforce.EventChanged, ID: warn.ID, Finding: finding(true)}, {Kind: enforce.EventOver, ID: second.ID, Host: "a"}}}, {event: []enforce.Event{warn}, want: "2h"}, {event: []enforce.Event{over}, over: true}},
		"no one was warned":          {{event: []enforce.Event{over}, exempt: bob}, {after: 2 * time.Hour, hold: hold}},
		"a hold": {
			{event: []enforce.Event{warn}, want: "2h"},
			{hold: hold},
			{after: 29 * time.Minute, hold: hold},
			{after: 30 * time.Minute, hold: hold, want: held + at(-30*time.Minute) + " (repair)"},
			{after: 40 * time.Minute, hold: hold},
			{after: 50 * time.Minute},
			{after: time.Hour, event: []enforce.Event{over}, over: true},
			{after: 2 * time.Hour, hold: hold},
		},
		"warned while it lasts": {{after: 40 * time.Minute, hold: hold, event: []enforce.Event{warn}, want: held}, {after: 50 * time.Minute, hold: hold}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Messages{}
			for i, s := range steps {
				memory := proctest.Try(json.Marshal(m.Memory())).OK(t)
				require.NotContains(t, string(memory), "sh -c private")
				m = &Messages{} // it restarts
				require.NoError(t, json.Unmarshal(memory, m.Memory()))
				deliveries, _ := m.Plan(&controller.Round{
					Cluster: cluster, Policy: policy.Default(), Now: now.Add(s.after), Exemptions: s.exempt, Hold: s.hold,
				}, s.event)
				if s.over {
					require.Len(t, deliveries, 1, i)
					require.Equal(t, []agent.Message{{UID: 1001, IDs: []string{"idle/a/5"}, Over: true}}, deliveries[0].Content.(*batch).over)
					require.Empty(t, deliveries[0].Content.(*batch).messages)
					continue
				}
				if s.want == "" {
					require.Empty(t, deliveries, i)
					continue
				}
				require.Len(t, deliveries, 1, i)
				require.Empty(t, deliveries[0].Content.(*batch).over)
				sent := deliveries[0].Content.(*batch).messages
				require.Len(t, sent, 1)
				require.EqualValues(t, 1001, sent[0].UID)
				require.Contains(t, sent[0].IDs, "idle/a/5", "its user's `genv why` shows the last of these")
				require.Contains(t, sent[0].Text, s.want, i)
				require.NotContains(t, sent[0].Text, "\n\n")
			}
		})
	}
}

// TestWarnedElsewhere: who was warned on another host, since something counts there, hears that it is over there, too.
func TestWarnedElsewhere(t *testing.T) {
	now := time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)
	bobs := func(pid snapshot.PID) *snapshot.Snapshot {
		return &snapshot.Snapshot{Processes: []snapshot.Process{{PID: pid, UID: new(snapshot.UID(1001)), Username: "bob"}}}
	}
	round := &controller.Round{Policy: policy.Default(), Now: now, Cluster: snapshot.Cluster{Hosts: []snapshot.Host{
		{Name: "a", Snapshot: bobs(5)}, {Name: "b", Snapshot: bobs(6)},
	}}}
	finding := &enforce.Finding{
		ID: "caps/lab/bob", Rule: enforce.RuleCaps, User: "bob", Pending: true, Due: now.Add(time.Hour),
		CountedOn: []snapshot.Hostname{"a", "b"}, Terminate: []enforce.ProcessRef{{Host: "a", PID: 5}},
	}
	for name, exemptions := range map[string]policy.ExemptionList{
		"over": nil, "exempt": {{Who: policy.Who{User: "bob"}, Until: now.Add(time.Hour)}},
	} {
		t.Run(name, func(t *testing.T) {
			m, then := &Messages{}, *round
			warnings, _ := m.Plan(round, []enforce.Event{{Kind: enforce.EventNotify, ID: finding.ID, Finding: finding}})
			require.Len(t, warnings, 2)
			then.Exemptions = exemptions
			deliveries, _ := m.Plan(&then, []enforce.Event{{Kind: enforce.EventOver, ID: finding.ID}})
			require.Len(t, deliveries, 2)
			for i, host := range []snapshot.Hostname{"a", "b"} {
				b := deliveries[i].Content.(*batch)
				require.Equal(t, host, deliveries[i].Host)
				require.Equal(t, []string{finding.ID}, append(b.over, b.messages...)[0].IDs)
			}
		})
	}
}

// TestManyExemptions: what is remembered of these is bounded, and the warnings that run are kept.
func TestManyExemptions(t *testing.T) {
	m := &Messages{Warned: map[string]*warned{"idle/a/5": {}}, Exempted: make(map[string]bool)}
	for i := range maxExempted + 1 {
		m.Exempted[fmt.Sprint(i)] = true
	}
	m.addLasting(&controller.Round{}, nil, nil)
	require.Empty(t, m.Exempted)
	require.Contains(t, m.Warned, "idle/a/5")
}
