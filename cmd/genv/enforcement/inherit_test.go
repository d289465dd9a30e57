package enforcement

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/notify/mail/mailtest"
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
			before := l.current.Memory
			l.save(&before)()
			require.NoError(t, l.part.follower.Poll(t.Context()), "before the hold")
			before.Operator.Hold = &operator.OnHold{Since: time.Now(), By: "ann", Reason: "a test"}
			l.save(&before)()
			s.silent = silent
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
}

func (s *far) Get(ctx context.Context, key string) (*etcd.Entry, error) {
	select {
	case <-time.After(s.takes):
		return s.store.Get(ctx, key)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// warn has a memory say of hosts, in all parts, that users were warned or not.
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
		900 * time.Millisecond: {5 * time.Second, "40 parts"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &far{store: &store{entries: map[string]etcd.Entry{}}}
			l := electedLoop(electedPart(t, s.store), m)
			defer l.close()
			var log bytes.Buffer
			l.log = zerolog.New(&log)
			begun := time.Now()
			l.part.follower = handover.Follower{Store: s, Key: electionKey, Now: time.Now, Clock: func() time.Duration { return time.Since(begun) }}
			before := l.current.Memory
			before.Rules.Time = time.Now()
			warn(&before.Rules, 0)
			l.save(&before)()
			require.NoError(t, l.part.follower.Poll(t.Context()))
			time.Sleep(followEvery)
			warn(&before.Rules, enforce.NotifiedOfWarning)
			l.save(&before)()
			s.takes = takes
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
