package companions

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A user reads of own processes only, with the id and the wording that the record has.
func TestNameDecisions(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	alice, bob := snapshot.UID(1001), snapshot.UID(1002)
	item := func(pid snapshot.PID, uid *snapshot.UID) audit.Record {
		return audit.Record{Kind: audit.KindOrder, Order: "r/1/a", Host: "a", IDs: []string{"cap"}, PID: pid, UID: uid, Text: "Terminating", Judged: []string{"process"}}
	}
	done := []audit.Record{item(1, &bob), item(2, &alice), item(3, &alice), item(4, nil)}
	all := map[snapshot.Hostname][]notify.UserMessage{
		"a": {{ID: "cap", UID: alice}, {ID: "other", UID: alice}, {ID: "cap", UID: alice, Pending: true}},
		"b": {{ID: "cap", UID: alice}},
	}
	nameDecisions(all, done, now)
	first := all["a"][0]
	require.Equal(t, []string{audit.DecisionID("r/1/a", 2, "", nil), audit.DecisionID("r/1/a", 3, "", nil)}, first.Decisions)
	want := item(2, &alice)
	want.Time = now
	require.Equal(t, want.Decided().Lines(), first.Record)
	require.Contains(t, first.Record, "Judged     process")
	require.Empty(t, all["a"][1].Decisions)
	require.Equal(t, []string{audit.WarningID("cap")}, all["a"][2].Decisions)
	require.Empty(t, all["b"][0].Record)
	_, body := (&mail.Letter{Items: []notify.UserMessage{first}}).Compose("")
	require.Contains(t, body, "  Decision    "+first.Decisions[0]+", "+first.Decisions[1]+"\n  Recorded:\n    Decision   "+first.Decisions[0]+"\n")
}

func TestMessages(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var l controller.HourlyQuota[snapshot.UID]
	for i := range messagesAnHour - 1 {
		note, ok := admit(&l, "a", 1001, messagesAnHour, now.Add(time.Duration(i)*time.Second))
		require.True(t, ok)
		require.Empty(t, note)
	}
	note, ok := admit(&l, "a", 1001, messagesAnHour, now.Add(time.Minute))
	require.True(t, ok, "the last one")
	require.Contains(t, note, "suppressed for up to an hour")
	for range 7 {
		_, ok = admit(&l, "a", 1001, messagesAnHour, now.Add(time.Hour-1))
		require.False(t, ok)
	}
	_, ok = admit(&l, "a", 1002, messagesAnHour, now.Add(time.Hour-1))
	require.True(t, ok, "another user")
	_, ok = admit(&l, "b", 1001, messagesAnHour, now.Add(time.Hour-1))
	require.True(t, ok, "the user of this uid elsewhere")
	l.Forget(now.Add(time.Hour))
	note, ok = admit(&l, "a", 1001, messagesAnHour, now.Add(time.Hour))
	require.True(t, ok)
	require.Equal(t, "7 more messages suppressed.", note)
	note, ok = admit(&l, "a", 1001, messagesAnHour, now.Add(time.Hour))
	require.True(t, ok)
	require.Empty(t, note, "it is said once")
	_, ok = admit(&l, "a", 1001, messagesAnHour, now)
	require.True(t, ok, "a clock that was set back suppresses nothing")
	l.Forget(now.Add(24 * time.Hour))
	require.Empty(t, l.Users)
}

// Who waits and gives up again and again leaves room for warnings of what a user does.
func TestMessagesForOthers(t *testing.T) {
	m, round := new(Messages), &controller.Round{Policy: policy.Default(), Now: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)}
	sent := func(forOthers ...bool) int {
		var list []notify.UserMessage
		for _, is := range forOthers {
			list = append(list, notify.UserMessage{Host: "a", UID: 1001, ForOthers: is})
		}
		return len(m.batch(list, round).messages)
	}
	for i := range messagesAnHour {
		require.Equal(t, i < messagesAnHour/2, sent(true, true) == 1, i)
	}
	for i := range messagesAnHour {
		require.Equal(t, i < messagesAnHour/2, sent(true, false) == 1, i)
	}
}

// A host that makes up users takes a bounded amount of memory, and none of the other hosts' room.
func TestMessagesAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var l controller.HourlyQuota[snapshot.UID]
	admitted := 0
	for i := range 3 * 1024 {
		if _, ok := admit(&l, "evil", snapshot.UID(i+1), messagesAnHour, now); ok {
			admitted++
		}
	}
	require.Equal(t, 1024, admitted)
	require.Len(t, l.Users["evil"], 1024+1)
	_, ok := admit(&l, "good", 1001, messagesAnHour, now)
	require.True(t, ok)
}
