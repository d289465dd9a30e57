package enforcement

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/controller/handover"
	"github.com/seed-3119e985/genv/remote/controller/statedir"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/election/etcd"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
)

// etcd elects a controller, and then doesn't answer for a while: before it acts, the new leader knows that
// operators had everything held.
func TestAHoldThatIsReadLate(t *testing.T) {
	m := mailtest.Start(t)
	for silent, held := range map[int]bool{0: true, 1: true, 5: true, 1000: false} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{entries: map[string]etcd.Entry{}}
			l := electedLoop(electedPart(t, s), m)
			defer l.close()
			l.part.follower = handover.Follower{Store: s, Key: electionKey, Now: time.Now, Clock: election.SinceBoot}
			before := l.controller.Memory
			l.save(&before)()
			require.NoError(t, l.part.follower.Poll(t.Context()), "before the hold")
			before.Operator.Hold = &operator.OnHold{Since: time.Now(), By: "ann", Reason: "a test"}
			l.save(&before)()
			s.silence(silent)
			var err error
			l.memory.store, err = statedir.Open(t.TempDir()) // of a controller that has not led
			require.NoError(t, err)
			memory := l.inherit()
			require.Equal(t, held, memory.Operator.Hold != nil, silent)
		})
	}
}

// far is an etcd of which each answer takes a while.
type far struct {
	*store
	takes time.Duration
	stuck bool // the memory without its head never comes
}

func (s *far) slow(takes time.Duration, stuck bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes, s.stuck = takes, stuck
}

func (s *far) Get(ctx context.Context, key string) (*etcd.Entry, error) {
	s.mu.Lock()
	takes, stuck := s.takes, s.stuck
	s.mu.Unlock()
	if stuck && strings.HasSuffix(key, "/memory/all") {
		takes = time.Hour
	}
	select {
	case <-time.After(takes):
		return s.store.Get(ctx, key)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// warn has a memory say of hosts that users were warned or not.
func warn(m *enforce.Memory, stage enforce.Notified) {
	m.Findings, m.Hosts = map[string]enforce.KnownFinding{}, map[snapshot.Hostname]enforce.KnownHost{}
	for i := range 400 {
		host := snapshot.Hostname(fmt.Sprintf("gpu-%04d", i))
		m.Hosts[host] = enforce.KnownHost{Answered: true}
		m.Findings[fmt.Sprintf("env-devices/%s/7/100", host)] = enforce.KnownFinding{Host: host, Notified: stage}
	}
}

// A leader notes in etcd that it warns users, warns them, and dies. The next one waits for what etcd has of it,
// for some seconds, so that it doesn't warn them again. What it still lacks then is in the log.
func TestWarningsThatAreReadSlowly(t *testing.T) {
	m := mailtest.Start(t)
	for takes, row := range map[time.Duration]struct {
		within time.Duration
		behind string
	}{
		time.Millisecond:       {10 * time.Millisecond, ""},
		80 * time.Millisecond:  {time.Second, ""},
		300 * time.Millisecond: {4 * time.Second, ""},
		time.Microsecond:       {5 * time.Second, "did not return the latest version"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &far{store: &store{entries: map[string]etcd.Entry{}}}
			l := electedLoop(electedPart(t, s.store), m)
			defer l.close()
			var log bytes.Buffer
			l.log = zerolog.New(&log)
			begun := time.Now()
			l.part.follower = handover.Follower{Store: s, Key: electionKey, Now: time.Now, Clock: func() time.Duration { return time.Since(begun) }}
			before := l.controller.Memory
			before.Rules.Time = time.Now()
			warn(&before.Rules, 0)
			l.save(&before)()
			require.NoError(t, l.part.follower.Poll(t.Context()))
			time.Sleep(followEvery)
			warn(&before.Rules, enforce.NotifiedOfWarning)
			l.save(&before)()
			s.slow(takes, row.behind != "")
			var err error
			l.memory.store, err = statedir.Open(t.TempDir()) // of a controller that has not led
			require.NoError(t, err)

			elected := time.Now()
			memory := l.inherit()
			require.LessOrEqual(t, time.Since(elected), row.within, takes)
			again := 0
			for _, f := range memory.Rules.Findings {
				if f.Notified == 0 {
					again++
				}
			}
			require.Len(t, memory.Rules.Findings, 400)
			require.Equal(t, row.behind != "", again > 0, "%s: %d warnings", takes, again)
			require.Contains(t, log.String(), row.behind, takes)
			require.Equal(t, row.behind != "", log.Len() > 0, log.String())
		})
	}
}

// What can't take hosts over says so, instead of leaving them to another controller.
func TestWhatTakesNoHostOver(t *testing.T) {
	for name, row := range map[string]struct {
		options Options
		why     string
	}{
		"a single cycle":             {Options{TakeOver: true}, "a single cycle"},
		"a loop of a single cycle":   {Options{TakeOver: true, Interval: time.Second, Cycles: 1}, "a single cycle"},
		"a loop without a folder":    {Options{TakeOver: true, Interval: time.Second}, "needs a state folder"},
		"a single cycle without it":  {Options{}, ""},
		"a loop without it":          {Options{Interval: time.Second}, ""},
		"a dry run in a loop, as is": {Options{Interval: time.Second, DryRun: true}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := (&memoryKeeper{}).claim(&row.options, &runIdentity{ID: "a"})
			if row.why == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.why)
			require.Equal(t, command.ExitFailed, command.ExitCode(err))
		})
	}
}

// The digest of hosts is that of their names, in any order.
func TestDigestOfHosts(t *testing.T) {
	list := func(names ...string) (hosts []remote.Host) {
		for _, n := range names {
			hosts = append(hosts, remote.Host{Name: n})
		}
		return hosts
	}
	require.Equal(t, digestOf(list("a", "b")), digestOf(list("b", "a")))
	for _, other := range [][]remote.Host{nil, list("a"), list("a", "c"), list("a", "b", "b"), list("ab")} {
		require.NotEqual(t, digestOf(list("a", "b")), digestOf(other))
	}
}

// A registration says how many hosts answered: also that none did.
func TestRegistrationOfACycle(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 7, time.UTC)
	cut := snapshot.Host{Name: "gpu-02", Err: errors.New("no answer")}
	for name, row := range map[string]struct {
		hosts    []snapshot.Host
		answered int
	}{
		"one of two": {[]snapshot.Host{{Name: "gpu-01", Snapshot: &snapshot.Snapshot{}}, cut}, 1},
		"none":       {[]snapshot.Host{cut, cut}, 0},
	} {
		var r election.Registration
		cycled(&r, &controller.Cycle{Cluster: snapshot.Cluster{Hosts: row.hosts}}, now)
		require.Equal(t, election.Registration{Cycled: now.Truncate(time.Second), Hosts: 2, Answered: &row.answered}, r, name)
	}
}

// A standby claims no host, so that it has --take-over may not look as if it took hosts over.
func TestElectionLine(t *testing.T) {
	for name, row := range map[string]struct {
		status   election.Status
		takeOver bool
		line     string
	}{
		"a standby":            {election.Status{Role: election.Standby, Answered: time.Now()}, false, "standby; no controller leads"},
		"etcd wasn't asked":    {election.Status{Role: election.Standby}, true, ""},
		"it is to take over":   {election.Status{Role: election.Standby, Leader: &election.Leader{Candidate: election.Candidate{Name: "bob"}}}, true, `standby; "bob" leads; --take-over has no effect until this controller leads`},
		"etcd is away as well": {election.Status{Role: election.Standby, Err: context.DeadlineExceeded}, true, "standby; etcd doesn't answer, so it isn't known which controller leads; --take-over has no effect until this controller leads"},
		"it leads":             {election.Status{Role: election.Leading, Epoch: 7}, true, "this controller leads since 0001-01-01T00:00:00Z (epoch 7)"},
	} {
		require.Equal(t, row.line, electionLine(&row.status, row.takeOver), name)
	}
}

// A controller that ends in order says so, and whether another one can lead now.
func TestResignation(t *testing.T) {
	for name, row := range map[string]struct {
		before func(s *store)
		want   string
	}{
		"it leads":            {func(*store) {}, "resigned after leading for 1m: another controller can lead now"},
		"another one leads":   {func(s *store) { s.elect("bob") }, "ended as a standby"},
		"etcd doesn't answer": {func(s *store) { s.fail(context.DeadlineExceeded) }, "ended while it wasn't known whether this controller still leads"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &store{entries: map[string]etcd.Entry{}}
			var log bytes.Buffer
			l := &loop{program: &command.Program{Now: time.Now}, log: zerolog.New(&log), part: electedPart(t, s)}
			time.Sleep(50 * time.Second)
			row.before(s)
			time.Sleep(10 * time.Second)
			leading(l).resign()
			require.Contains(t, log.String(), row.want, name)
		})
	}
}

// An operator who asks a standby is told who leads.
func TestAnOperatorAsksAStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{entries: map[string]etcd.Entry{}}
		l := &loop{part: electedPart(t, s), queue: controller.NewQueue()}
		s.elect("bob")
		time.Sleep(10 * time.Second)
		_, err := l.do(t.Context(), operator.Person{}, operator.Action{})
		var refusal *operator.Refusal
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, operator.Unable, refusal.Code)
		require.Contains(t, refusal.Text, "this controller doesn't act now: standby; ")
	})
}
