package audit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/snapshot"
)

// The findings of these tests, with ids as rules make them.
const (
	outside = "non-env-processes/a/5/1"
	idle    = "idle/a/10/0/2026-11-20T08:00:00"
	capped  = "max-devices-per-user/bob"
)

func found(id string, d enforce.Decision) audit.Record {
	return audit.Record{Kind: audit.KindFinding, IDs: []string{id}, Decision: d}
}

func notified(id string, c audit.Channel) audit.Record {
	return audit.Record{Kind: audit.KindNotified, Channel: c, IDs: []string{id}, User: "bob"}
}

func done(s order.OutcomeStatus, pid snapshot.PID, ids ...string) audit.Record {
	return audit.Record{Kind: audit.KindOutcome, Order: "r/1/a", IDs: ids, Host: "a", User: "bob", PID: pid, Status: s}
}

type statsCase struct {
	name    string
	records []audit.Record
	rows    []audit.StatsRow
	total   audit.ActionCounts
}

func row(rule enforce.Rule, c audit.ActionCounts) audit.StatsRow {
	return audit.StatsRow{User: "bob", Rule: rule, ActionCounts: c}
}

var statsCases = []statsCase{
	{"nothing", nil, []audit.StatsRow{}, audit.ActionCounts{}},
	{
		"a warning counts once, however it was sent",
		[]audit.Record{found(outside, enforce.DecisionWait), notified(outside, audit.ChannelLogin), notified(outside, audit.ChannelMail), notified(outside, "")},
		[]audit.StatsRow{row(enforce.RuleNonEnvProcesses, audit.ActionCounts{Warned: 1})},
		audit.ActionCounts{Warned: 1},
	},
	{
		"and again when it was over",
		[]audit.Record{notified(idle, ""), {Kind: audit.KindCleared, IDs: []string{idle}}, notified(idle, "")},
		[]audit.StatsRow{row(enforce.RuleIdle, audit.ActionCounts{Warned: 2})},
		audit.ActionCounts{Warned: 2},
	},
	{
		"a notice of an action is no warning, nor one that didn't arrive",
		[]audit.Record{
			found(outside, enforce.DecisionAct), notified(outside, ""),
			{Kind: audit.KindNotified, IDs: []string{idle}, User: "bob", Reason: "not logged in"},
		},
		[]audit.StatsRow{},
		audit.ActionCounts{},
	},
	{
		"an action because of two rules",
		[]audit.Record{done(order.StatusTerminated, 5, outside, capped)},
		[]audit.StatsRow{row(enforce.RuleMaxDevicesPerUser, audit.ActionCounts{Terminated: 1}), row(enforce.RuleNonEnvProcesses, audit.ActionCounts{Terminated: 1})},
		audit.ActionCounts{Terminated: 1},
	},
	{
		"every status",
		[]audit.Record{
			done(order.StatusKilled, 1, idle), done(order.StatusSignalled, 2, idle), done(order.StatusDetached, 3, idle), done(order.StatusRefused, 4, idle),
			done(order.StatusFailed, 5, idle), done(order.StatusSurvived, 6, idle), done(order.StatusUnknown, 7, idle),
			done(order.StatusGone, 8, idle), done(order.StatusChanged, 9, idle), done(order.StatusNotAttached, 10, idle),
		},
		[]audit.StatsRow{row(enforce.RuleIdle, audit.ActionCounts{Terminated: 2, Detached: 1, Refused: 1, Failed: 3})},
		audit.ActionCounts{Terminated: 2, Detached: 1, Refused: 1, Failed: 3},
	},
	{
		"operators",
		[]audit.Record{
			{Kind: audit.KindOperator, Action: "exempt", User: "bob", Rule: enforce.RuleIdle},
			{Kind: audit.KindOperator, Action: "exempt", Host: "a"},
			{Kind: audit.KindOperator, Action: "exempt", User: "bob", Status: order.StatusFailed},
			{Kind: audit.KindOperator, Action: "unexempt", User: "bob"},
			done(order.StatusTerminated, 5, "run/3/a"),
		},
		[]audit.StatsRow{
			{ActionCounts: audit.ActionCounts{Exempted: 1}}, row("", audit.ActionCounts{Terminated: 1}), row(enforce.RuleIdle, audit.ActionCounts{Exempted: 1}),
		},
		audit.ActionCounts{Terminated: 1, Exempted: 2},
	},
	{
		"a user without a name",
		[]audit.Record{{Kind: audit.KindOutcome, UID: new(snapshot.UID(1002)), IDs: []string{idle}, PID: 1, Status: order.StatusTerminated}},
		[]audit.StatsRow{{User: "1002", Rule: enforce.RuleIdle, ActionCounts: audit.ActionCounts{Terminated: 1}}},
		audit.ActionCounts{Terminated: 1},
	},
	{
		"the answer to a request is no warning",
		[]audit.Record{{Kind: audit.KindExtension, IDs: []string{"x"}, Action: "extended", User: "bob"}, notified("x", "")},
		[]audit.StatsRow{},
		audit.ActionCounts{},
	},

	// What a dry run would have done.
	{
		"a dry run counts once what it would do, also because of two rules",
		[]audit.Record{wouldAct(outside, 5), wouldAct(capped, 5, 6), wouldAct(capped, 5, 6)},
		[]audit.StatsRow{
			row(enforce.RuleMaxDevicesPerUser, audit.ActionCounts{WouldTerminate: 2, WouldDetach: 2}), row(enforce.RuleNonEnvProcesses, audit.ActionCounts{WouldTerminate: 1}),
		},
		audit.ActionCounts{WouldTerminate: 2, WouldDetach: 2},
	},
	{
		"and again when it was over",
		[]audit.Record{wouldAct(outside, 5), {Kind: audit.KindCleared, IDs: []string{outside}}, wouldAct(outside, 5)},
		[]audit.StatsRow{row(enforce.RuleNonEnvProcesses, audit.ActionCounts{WouldTerminate: 2})},
		audit.ActionCounts{WouldTerminate: 2},
	},
	{
		"what a safety limit holds back would not be done",
		[]audit.Record{{Kind: audit.KindFinding, IDs: []string{outside}, Decision: enforce.DecisionHold, User: "bob", Finding: wouldAct(outside, 5).Finding}},
		[]audit.StatsRow{},
		audit.ActionCounts{},
	},
}

// wouldAct is a finding about which a dry run does nothing.
func wouldAct(id string, pids ...snapshot.PID) audit.Record {
	f := &enforce.Finding{ID: id}
	for _, pid := range pids {
		f.Terminate = append(f.Terminate, enforce.ProcessRef{Host: "a", PID: pid})
	}
	if id == capped {
		f.Detach = []enforce.DeviceRef{{Host: "a", Index: 0, EID: "7"}, {Host: "b", Index: 0, EID: "7"}}
	}
	return audit.Record{Kind: audit.KindFinding, IDs: []string{id}, Decision: enforce.DecisionDryRun, User: "bob", Finding: f}
}

func TestStats(t *testing.T) {
	for _, tt := range statsCases {
		t.Run(tt.name, func(t *testing.T) {
			for i := range tt.records {
				tt.records[i].Time = at(i)
			}
			entries := history(t, recorded(t, tt.records...), audit.Filter{Notices: true})
			require.Equal(t, audit.Stats{Rows: tt.rows, Total: tt.total}, audit.Sum(entries))
		})
	}
}

func TestFilterByRuleAndTime(t *testing.T) {
	item := func(minute int, kind audit.RecordKind, pid snapshot.PID, ids ...string) audit.Record {
		r := audit.Record{Time: at(minute), Kind: kind, Order: "r/1/a", PID: pid, IDs: ids}
		if kind == audit.KindOutcome {
			r.Status = order.StatusTerminated
		}
		return r
	}
	path := recorded(t,
		item(1, audit.KindOrder, 1, outside, capped), item(2, audit.KindOutcome, 1, outside, capped),
		item(3, audit.KindOrder, 2, idle), item(6, audit.KindOutcome, 2, idle),
		item(7, audit.KindOrder, 3), item(8, audit.KindOutcome, 3),
	)
	for name, tt := range map[string]struct {
		filter audit.Filter
		pids   []snapshot.PID
	}{
		"all":                         {audit.Filter{}, []snapshot.PID{1, 2, 3}},
		"the second rule":             {audit.Filter{Rule: enforce.RuleMaxDevicesPerUser}, []snapshot.PID{1}},
		"another rule":                {audit.Filter{Rule: enforce.RuleEnvMemory}, nil},
		"the outcome came after that": {audit.Filter{Since: at(3), Until: at(5)}, []snapshot.PID{2}},
		"the end doesn't count":       {audit.Filter{Until: at(3)}, []snapshot.PID{1}},
	} {
		var pids []snapshot.PID
		for _, e := range history(t, path, tt.filter) {
			require.Equal(t, order.StatusTerminated, e.Status, name)
			pids = append(pids, e.PID)
		}
		require.Equal(t, tt.pids, pids, name)
	}
}
