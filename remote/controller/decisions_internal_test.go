package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/decision"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/texts"
	"github.com/seed-3119e985/genv/snapshot"
)

// A user reads of own processes only, with the id and the wording that the record has.
func TestNameDecisions(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	alice, bob := snapshot.UID(1001), snapshot.UID(1002)
	item := func(pid snapshot.PID, uid *snapshot.UID) audit.Record {
		return audit.Record{Kind: audit.KindReport, Report: "r/1/a", Host: "a", IDs: []string{"cap"}, PID: pid, UID: uid, Text: "Terminating", Judged: []string{"process"}}
	}
	visits := []*visit{{name: "a", items: []audit.Record{item(1, &bob), item(2, &alice), item(3, &alice), item(4, nil)}}}
	all := map[snapshot.Hostname][]notify.Notification{
		"a": {{ID: "cap", UID: alice}, {ID: "other", UID: alice}, {ID: "cap", UID: alice, Details: texts.Finding{Pending: true}}},
		"b": {{ID: "cap", UID: alice}},
	}
	nameDecisions(all, visits, now)
	first := all["a"][0].Details
	require.Equal(t, []string{decision.ID("r/1/a", 2, "", nil), decision.ID("r/1/a", 3, "", nil)}, first.Decisions)
	want := item(2, &alice)
	want.Time = now
	require.Equal(t, want.Decided().Lines(), first.Record)
	require.Contains(t, first.Record, "Judged     process")
	require.Empty(t, all["a"][1].Details.Decisions)
	require.Equal(t, []string{decision.WarningID("cap")}, all["a"][2].Details.Decisions)
	require.Empty(t, all["b"][0].Details.Record)
	require.Contains(t, texts.Body(texts.Notice{Findings: []texts.Finding{first}}), "  Decision    "+first.Decisions[0]+", "+first.Decisions[1]+"\n  Recorded:\n    Decision   "+first.Decisions[0]+"\n")
}
