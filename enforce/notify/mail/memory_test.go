package mail_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/snapshot"
)

var rules = mail.Rules{Gather: time.Minute, Digest: time.Hour, PerUser: 4, InAll: 20}

// start is when the tests begin; at is so much later.
var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time { return start.Add(d) }

// box is a memory, and what was due.
type box struct {
	mail.Backlog
	t   *testing.T
	ids int
}

func (b *box) add(user, host, rule string, when time.Duration) {
	b.t.Helper()
	b.ids++
	require.True(b.t, b.Add(snapshot.Username(user), notify.NoticeItem{ID: fmt.Sprint(b.ids), Host: host, Rule: rule, At: at(when)}, rules, at(when)))
}

// due is what is due, as "user n digest".
func (b *box) due(when time.Duration) []string {
	var list []string
	for _, l := range b.Due(rules, at(when)) {
		s := fmt.Sprintf("%s %d", l.User, len(l.Items)+l.More)
		if l.Digest {
			s += " digest"
		}
		list = append(list, s)
	}
	return list
}

func TestTheFirstMailLeavesWithinAMinuteAndTheRestInADigest(t *testing.T) {
	b := box{t: t}
	b.add("alice", "a", "idle", 0)
	require.Empty(t, b.due(59*time.Second), "others may follow")
	b.add("alice", "a", "env-memory", 59*time.Second)
	require.Equal(t, []string{"alice 2"}, b.due(time.Minute))
	require.Empty(t, b.due(time.Minute))

	b.add("alice", "a", "idle", 5*time.Minute)
	b.add("alice", "a", "idle", 30*time.Minute)
	require.Empty(t, b.due(59*time.Minute), "nothing new")
	require.Equal(t, []string{"alice 2 digest"}, b.due(time.Hour))

	b.add("alice", "a", "idle", 61*time.Minute)
	require.Empty(t, b.due(119*time.Minute), "the digest spoke of it")
	b.add("alice", "b", "idle", 119*time.Minute)
	require.Equal(t, []string{"alice 2"}, b.due(120*time.Minute), "a new matter takes along what waits")
	require.Empty(t, b.due(4*time.Hour))
	require.Empty(t, b.Users, "it forgets")
	b.add("alice", "a", "idle", 5*time.Hour)
	require.Equal(t, []string{"alice 1"}, b.due(5*time.Hour+time.Minute), "new again")
}

func TestTheSameFindingIsMailedOnce(t *testing.T) {
	b := box{t: t}
	f := notify.NoticeItem{ID: "x", Host: "a", Rule: "idle", Pending: true}
	require.True(t, b.Add("alice", f, rules, at(0)))
	require.Equal(t, []string{"alice 1"}, b.due(time.Minute))
	require.True(t, b.Add("alice", f, rules, at(2*time.Minute)), "the terminal may not have shown it")
	require.Empty(t, b.due(59*time.Minute))
	f.Pending = false
	require.True(t, b.Add("alice", f, rules, at(59*time.Minute)), "it was acted on")
	require.Equal(t, []string{"alice 1 digest"}, b.due(time.Hour))
}

func TestAHostThatMakesThingsUp(t *testing.T) {
	b := box{t: t}
	for i := range 50 {
		b.add("alice", "bad", fmt.Sprint("rule", i), 0)
	}
	require.Equal(t, []string{"alice 50"}, b.due(time.Minute))
	require.Empty(t, b.Users["alice"].Items, "with a limit of what is kept")
	for i := range 8 {
		b.add("alice", "bad", fmt.Sprint("other", i), time.Duration(2+i)*time.Minute)
		require.Empty(t, b.due(time.Duration(4+i)*time.Minute), "two matters of a host are new in an hour")
	}
	b.add("alice", "good", "idle", 20*time.Minute)
	require.Equal(t, []string{"alice 9"}, b.due(21*time.Minute), "another host is heard")

	for i := range 100 {
		b.Add(snapshot.Username(fmt.Sprint("user", i)), notify.NoticeItem{ID: "1", Host: "bad", Rule: "idle"}, rules, at(30*time.Minute))
	}
	require.False(t, b.Add("one-more", notify.NoticeItem{ID: "1", Host: "bad", Rule: "idle"}, rules, at(30*time.Minute)))
	require.Len(t, b.due(31*time.Minute), rules.InAll/4-1, "its share of the hour, of which alice had one")
	b.add("bob", "good", "idle", 40*time.Minute)
	require.Equal(t, []string{"bob 1"}, b.due(41*time.Minute), "another host is heard")
}

func TestLimits(t *testing.T) {
	b := box{t: t}
	for i := range 10 { // alice breaks a rule on ten hosts
		when := time.Duration(2*i) * time.Minute
		b.add("alice", fmt.Sprint("host", i), "idle", when)
		if due := b.due(when + time.Minute); i < rules.PerUser {
			require.Equal(t, []string{"alice 1"}, due)
		} else {
			require.Empty(t, due)
		}
	}
	require.Equal(t, []string{"alice 6 digest"}, b.due(time.Hour))

	b = box{t: t}
	for i := range 30 {
		b.add(fmt.Sprint("user", i), fmt.Sprint("host", i), "idle", 0)
	}
	require.Len(t, b.due(time.Minute), rules.InAll)
	require.Empty(t, b.due(30*time.Minute))
	require.Len(t, b.due(62*time.Minute), 10, "they are late, not lost")
}

func TestAClockThatIsSetBack(t *testing.T) {
	b := box{t: t}
	b.add("alice", "a", "idle", 0)
	require.Equal(t, []string{"alice 1"}, b.due(-time.Hour))
	b.add("alice", "a", "idle", -time.Hour)
	require.Empty(t, b.due(-59*time.Minute))
}

// A run that ends keeps the digests; what the next one reads is the same.
func TestTheMemoryGoesOnAfterARestart(t *testing.T) {
	b := box{t: t}
	b.add("alice", "a", "idle", 0)
	require.Len(t, b.due(time.Minute), 1)
	b.add("alice", "a", "idle", 2*time.Minute)
	b.add("bob", "a", "idle", 2*time.Minute)
	flushed := b.Flush(rules, at(2*time.Minute))
	require.Len(t, flushed, 1)
	require.Equal(t, "bob", string(flushed[0].User))
	b.Return(flushed[0], at(2*time.Minute)) // the server was away

	data, err := json.Marshal(b.Backlog)
	require.NoError(t, err)
	next := box{t: t}
	require.NoError(t, json.Unmarshal(data, &next.Backlog))
	require.Equal(t, []string{"bob 1"}, next.due(3*time.Minute))
	require.Equal(t, []string{"alice 1 digest"}, next.due(time.Hour))

	require.NoError(t, json.Unmarshal([]byte(`{"users":{"x":null}}`), &next.Backlog))
	require.Empty(t, next.due(time.Hour))
}

func TestReturnedLettersAreBounded(t *testing.T) {
	b := box{t: t}
	for range 3 {
		for range 20 {
			b.add("alice", "a", "idle", 0)
		}
		letters := b.Flush(rules, at(2*time.Hour))
		if len(letters) > 0 {
			b.Return(letters[0], at(0))
		}
	}
	require.LessOrEqual(t, len(b.Users["alice"].Items), 20)
	require.Equal(t, []string{"alice 60"}, b.due(10*time.Hour))
}

// A server, or somebody on the way to it, answers without an end.
func TestAServerThatNeverEndsALine(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	written := make(chan int64, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			written <- 0
			return
		}
		n, _ := io.Copy(conn, io.LimitReader(zeros{}, 1<<30)) // until the other end closes
		_ = conn.Close()
		written <- n
	}()
	set := settings(&mailtest.Server{Address: listener.Addr().String()})
	set.TLS = policy.NoTLS
	o := open(set, func(o *mail.Options) { o.GiveUp = time.Nanosecond })
	o.Send(mail.Letter{User: "alice", Items: []notify.NoticeItem{{Host: "a", Text: "x"}}})
	sent := <-written
	require.NoError(t, listener.Close())
	o.Close(time.Second)
	require.Less(t, sent, int64(64<<20))
	require.Len(t, o.results, 1)
	require.ErrorContains(t, o.results[0].Err, "more than a mail server should")
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// end ends a process that a test left behind.
func end(t *testing.T, pid string) {
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(n, syscall.SIGKILL) // if it is there
}

func TestDroppedLettersAreCounted(t *testing.T) {
	s := mailtest.Start(t)
	s.Answer("RCPT", "hang")
	with := settings(s)
	with.Timeout = time.Hour
	o := open(with, nil)
	const sent = 5000
	for i := range sent {
		o.Send(letter(fmt.Sprint("user", i)))
	}
	unsent := o.Close(0)
	dropped := 0
	for _, r := range o.results {
		require.True(t, errors.Is(r.Err, mail.ErrFull), r.Err)
		dropped++
	}
	require.Equal(t, sent, len(unsent)+dropped+len(o.warned))
	require.Positive(t, dropped+len(o.warned))
	require.False(t, bytes.Contains([]byte(strings.Join(o.warned, "")), []byte("\n")))
}
