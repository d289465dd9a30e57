package controller

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

func TestMessages(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var l MessageCounts
	alice := Recipient{"a", 1001}
	for i := range messagesAnHour - 1 {
		note, ok := l.Admit(alice, now.Add(time.Duration(i)*time.Second))
		require.True(t, ok)
		require.Empty(t, note)
	}
	note, ok := l.Admit(alice, now.Add(time.Minute))
	require.True(t, ok, "the last one")
	require.Contains(t, note, "suppressed for up to an hour")
	for range 7 {
		_, ok = l.Admit(alice, now.Add(time.Hour-1))
		require.False(t, ok)
	}
	for _, other := range []Recipient{{"a", 1002}, {"b", 1001}} {
		_, ok = l.Admit(other, now.Add(time.Hour-1))
		require.True(t, ok, "other users, and the user of this uid elsewhere")
	}
	l.Forget(now.Add(time.Hour))
	note, ok = l.Admit(alice, now.Add(time.Hour))
	require.True(t, ok)
	require.Equal(t, "7 more messages suppressed.", note)
	note, ok = l.Admit(alice, now.Add(time.Hour))
	require.True(t, ok)
	require.Empty(t, note, "it is said once")
	_, ok = l.Admit(alice, now)
	require.True(t, ok, "a clock that was set back suppresses nothing")
	l.Forget(now.Add(24 * time.Hour))
	require.Empty(t, l.Users)
}

// A host that makes up users takes a bounded amount of memory, and none of the
// other hosts' room.
func TestMessagesAreBounded(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var l MessageCounts
	admitted := 0
	for i := range 10 * maxRecipients {
		if _, ok := l.Admit(Recipient{"evil", snapshot.UID(i)}, now); ok {
			admitted++
		}
	}
	require.Equal(t, maxRecipients, admitted)
	require.Len(t, l.Users["evil"], maxRecipients)
	_, ok := l.Admit(Recipient{"good", 1001}, now)
	require.True(t, ok)
}
