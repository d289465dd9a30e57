package mail

import (
	"fmt"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

// waiting is a Sender that doesn't work, at a time that a test sets.
type waiting struct {
	*Sender
	now time.Time
}

func newWaiting() *waiting {
	w := &waiting{now: time.Unix(1_700_000_000, 0)}
	w.Sender = &Sender{Now: func() time.Time { return w.now }, settings: &policy.Mail{
		PerUser: 2, InAll: 40, Digest: time.Hour, OptOut: []string{"opted"}, AddressTemplate: template.Must(template.New("").Parse("{{.User}}@example.org")),
	}, groups: make(map[snapshot.Username]*group)}
	return w
}

func (w *waiting) add(user snapshot.Username, host string, id int) error {
	n := &notify.UserMessage{User: user, ID: fmt.Sprint(host, id), Host: snapshot.Hostname(host), Rule: "idle", At: w.now}
	return w.Add(n, "run", 7)
}

// after returns what is due after a time, as in "bob 3".
func (w *waiting) after(d time.Duration) (list []string) {
	w.now = w.now.Add(d)
	for _, l := range w.due(w.now, false) {
		text := fmt.Sprint(l.User, " ", len(l.Items)+l.More)
		if l.Digest {
			text += " digest"
		}
		list = append(list, text)
	}
	return list
}

func TestWhatComesWithinAMinuteIsOneMail(t *testing.T) {
	w := newWaiting()
	require.NoError(t, w.add("bob", "a", 1))
	require.Empty(t, w.after(30*time.Second))
	require.NoError(t, w.add("bob", "b", 2))
	require.NoError(t, w.add("bob", "b", 2), "the same again, since a terminal may not have got it")
	require.NoError(t, w.add("ann", "b", 2))
	require.Equal(t, []string{"bob 2"}, w.after(30*time.Second))
	require.Equal(t, []string{"ann 1"}, w.after(30*time.Second))
	require.Empty(t, w.after(time.Minute))
}

func TestWhatIsBeyondWaitsForTheEndOfTheInterval(t *testing.T) {
	w := newWaiting()
	for i := range 2 {
		require.NoError(t, w.add("bob", "a", i))
		require.Equal(t, []string{"bob 1"}, w.after(time.Minute))
	}
	for i := range 30 {
		require.NoError(t, w.add("bob", "a", 10+i))
	}
	require.Empty(t, w.after(57*time.Minute))
	require.Equal(t, []string{"bob 30 digest"}, w.after(time.Minute))
	require.NoError(t, w.add("bob", "a", 100))
	require.Equal(t, []string{"bob 1"}, w.after(time.Minute), "another interval")
	require.Empty(t, w.after(2*time.Hour))
	require.Empty(t, w.groups, "it is forgotten")
}

func TestWhoGetsNoMail(t *testing.T) {
	w := newWaiting()
	require.ErrorIs(t, w.add("opted", "a", 1), policy.ErrOptedOut)
	require.ErrorContains(t, w.add("", "a", 1), "doesn't report the name")
	require.ErrorContains(t, w.add("a,b", "a", 1), "the name of the user")
	for i := range 100 {
		require.NoError(t, w.add(snapshot.Username(fmt.Sprint("user", i)), "evil", i))
	}
	require.ErrorIs(t, w.add("one-more", "evil", 1), ErrNoRoom)
	require.NoError(t, w.add("bob", "good", 1))
	require.Len(t, w.after(time.Minute), 11, "a quarter of all are about one host, and bob's")
	for i := range 60 {
		require.NoError(t, w.add(snapshot.Username(fmt.Sprint("honest", i)), fmt.Sprint("host", i), i))
	}
	require.Len(t, w.after(time.Minute), 29, "40 in an hour")
	require.Len(t, w.after(time.Hour), 40)
}
