package controller_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/notify"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/companions"
	"github.com/seed-3119e985/genv/remote/controller"
	hooksink "github.com/seed-3119e985/genv/remote/hooks"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// mails takes what users are told.
type mails struct {
	list []notify.UserMessage
	runs []string
}

func (m *mails) Add(n *notify.UserMessage, run string, round int) error {
	if _, err := (&policy.Mail{OptOut: []string{"opted"}}).Address(n.User); !errors.Is(err, policy.ErrNoAddress) {
		return err
	}
	m.list, m.runs = append(m.list, *n), append(m.runs, fmt.Sprint(run != "", " ", round))
	return nil
}

// mailing is a controller of a fleet that mails to m.
func mailing(p *fakeFleet, log controller.Recorder, m *mails) *controller.Controller {
	c := p.controller(log)
	c.Companions = append(c.Companions, companions.Mail(m.Add))
	return c
}

// named is a fleet whose host a has one process of each user, whose uids begin at 1001.
func named(t *testing.T, users ...snapshot.Username) *fakeFleet {
	p := newFakeFleet(t)
	p.hosts = map[string][]snapshot.PID{}
	p.names = map[snapshot.PID]snapshot.Username{}
	for i, user := range users {
		pid := snapshot.PID(100 + i)
		p.hosts["a"] = append(p.hosts["a"], pid)
		p.names[pid] = user
	}
	p.uid = func(pid snapshot.PID) snapshot.UID { return snapshot.UID(901 + pid) }
	return p
}

func TestMailAboutWhatIsNew(t *testing.T) {
	p := named(t, "alice", "opted", "")
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var sent mails
	c := mailing(p, &audit.Log{Path: path}, &sent)
	policy := strict{notify: true, warn: enforce.Warn{Cycles: 2}}
	cycleOf(t.Context(), c, policy)
	require.Len(t, sent.list, 1)
	require.Equal(t, "alice", string(sent.list[0].User))
	require.Equal(t, "true 1", sent.runs[0])
	item := sent.list[0]
	require.Equal(t, "Process 100 is not running in a GPU environment (user alice).", item.Line)
	require.Equal(t, "process 100 will be ended", item.Follows)
	require.True(t, item.Pending)
	require.Equal(t, snapshot.Hostname("a"), item.Host)

	cycleOf(t.Context(), c, policy)
	cycleOf(t.Context(), c, policy)
	require.Len(t, sent.list, 2)
	require.False(t, sent.list[1].Pending, "that it is ended")
	data := proctest.ReadFile(t, path)
	require.Equal(t, 2, strings.Count(string(data), "lists the user under `opt-out`"), "before and when it is ended: the record is complete")
	require.Equal(t, 2, strings.Count(string(data), "doesn't report the name of this user"))
	require.NotContains(t, string(data), `"reason":"not sent","user":"alice"`)
	require.Len(t, p.messages, 6, "the terminals show all of it")
}

// A cycle that does not count mails nothing, since the next one finds the same.
func TestNoMailFromACycleThatIsNotRecorded(t *testing.T) {
	var sent mails
	require.Error(t, cycleOf(t.Context(), mailing(named(t, "alice"), &full{}, &sent), strict{notify: true}).Unrecorded)
	require.Empty(t, sent.list)
}

// A dry run says what mail would be sent, and neither records nor shows it.
func TestADryRunRecordsNoMail(t *testing.T) {
	p := named(t, "alice", "opted")
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var said mails
	c := mailing(p, &audit.Log{Path: path}, &said)
	c.DryRun = true
	cycleOf(t.Context(), c, strict{notify: true})
	require.Len(t, said.list, 1)
	require.Empty(t, p.messages)
	require.NotContains(t, proctest.ReadText(t, path), `"told"`)
}

func TestMailWithoutTerminals(t *testing.T) {
	p := named(t, "alice")
	var sent mails
	c := mailing(p, nil, &sent)
	c.Companions = c.Companions[1:]
	round := cycleOf(t.Context(), c, strict{notify: true})
	require.Len(t, sent.list, 1)
	require.Empty(t, p.messages)
	require.Empty(t, round.Notified)
	require.Len(t, round.Results, 1)
}

// slowLog is a record on a disk that keeps a controller waiting.
type slowLog struct {
	audit.Log
	waits func()
}

func (l *slowLog) Append(records ...audit.Record) error {
	l.waits()
	return l.Log.Append(records...)
}

// A leader is stopped after it has found out that it leads, until its lease has ended. Another
// one has run the hooks meanwhile.
func TestALeaseThatEndsBeforeHooks(t *testing.T) {
	for name, row := range map[string]struct {
		whileRecorded bool
		hooks         int
	}{
		"it goes on leading": {false, 1},
		"while it records":   {true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var leads atomic.Bool
			leads.Store(true)
			log := &slowLog{audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}, func() { leads.Store(leads.Load() && !row.whileRecorded) }}
			var hooks hookEvents
			c := named(t, "alice").controller(log)
			c.Sinks = append(c.Sinks, hooksink.Sink{Queue: &hooks, Now: c.Now, Leads: leads.Load})
			cycleOf(t.Context(), c, strict{notify: true, warn: enforce.Warn{Cycles: 2}})
			require.Len(t, hooks, row.hooks)
		})
	}
}

// The controller that sent an order runs the hooks for its outcome: no other one knows it.
func TestHooksOfAnOrderThatOutlastsALease(t *testing.T) {
	p := newFakeFleet(t)
	var hooks hookEvents
	c := p.controller(nil)
	c.Sinks = append(c.Sinks, hooksink.Sink{Queue: &hooks, Now: c.Now, Leads: func() bool { return false }})
	cycleOf(t.Context(), c, strict{})
	require.Equal(t, hookEvents{"act 4 4 false"}, hooks)
}

// guarded is a Link to hosts with guards, and a record that may be full.
type guarded struct {
	controller.Link
	records []audit.Record
	full    error
	asked   int
	said    []string
}

func (g *guarded) Snapshot(context.Context, remote.Host) (*snapshot.Snapshot, error) {
	return &snapshot.Snapshot{}, nil
}

func (g *guarded) About(remote.Host) agent.About {
	return agent.About{Via: agent.ViaStream, Capabilities: []string{agent.RequestGuard}}
}

func (g *guarded) Guard(context.Context, remote.Host, agent.GuardRequest) (agent.GuardAnswer, error) {
	g.asked++
	return agent.GuardAnswer{State: agent.GuardState{Mode: guard.Enforce}}, nil
}

func (g *guarded) Append(records ...audit.Record) error {
	if g.full != nil {
		return g.full
	}
	g.records = append(g.records, records...)
	return nil
}

func (*guarded) Reserve(int64) error { return nil }

func (g *guarded) Consume(_ *controller.Round, events []enforce.Event) {
	for i := range events {
		g.said = append(g.said, fmt.Sprintf("%s %s: %s", events[i].Kind, events[i].Host, events[i].Text))
	}
}

// What could not be recorded is neither asked nor said, and both later.
func TestGuardsOfACycleThatDoesNotCount(t *testing.T) {
	g := &guarded{full: errors.New("no space left")}
	wanted := proctest.Try(policy.Parse("p.yaml", []byte("defaults: {guard: enforce}"))).OK(t)
	c := &controller.Controller{Options: controller.Options{
		Survey: controller.Survey{Hosts: []remote.Host{{Name: "h1"}}, Link: g, Fanout: 1}, Policy: wanted,
		Now: time.Now, Audit: g, Sinks: []controller.Sink{g}, Companions: []controller.Companion{&companions.Guards{}},
	}}
	for range 2 {
		once(t.Context(), c)
		require.Zero(t, g.asked)
		require.Empty(t, g.said)
	}
	g.full = nil
	for number := range 2 {
		once(t.Context(), c)
		require.Equal(t, number+1, g.asked)
		require.Equal(t, []string{"guard h1: setting the kernel guard to enforce", "guard h1: the kernel guard is enforcing"}, g.said)
		require.Len(t, g.records, 2, "once")
	}
	g.full = errors.New("no space left")
	once(t.Context(), c)
	require.Equal(t, 2, g.asked)
	g.full = nil
	once(t.Context(), c)
	require.Equal(t, 3, g.asked, "or everything would open")
}
