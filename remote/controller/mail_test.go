package controller_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/controller"
	hooksink "github.com/seed-3119e985/genv/remote/controller/hooks"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/snapshot"
)

// letters takes mails.
type letters []mail.Letter

func (l *letters) Send(letter mail.Letter)   { *l = append(*l, letter) }
func (l *letters) Unsent(mail.Letter, error) {}

// mailing is a controller of a fleet that mails to l at once.
func mailing(p *fakeFleet, log controller.Recorder, l *letters) *controller.Controller {
	c := p.controller(log)
	c.Mailing = controller.Mailing{
		Mailer: l, Rules: mail.Rules{Digest: time.Hour, PerUser: 4, InAll: 100},
		OptedOut: func(user snapshot.Username) bool { return user == "opted" },
	}
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
	var sent letters
	c := mailing(p, &audit.Log{Path: path}, &sent)
	policy := strict{notify: true, warn: enforce.Warn{Cycles: 2}}
	cycleOf(t.Context(), c, 1, policy)
	require.Len(t, sent, 1)
	require.Equal(t, "alice", string(sent[0].User))
	require.NotEmpty(t, sent[0].Run)
	require.Equal(t, 1, sent[0].Cycle)
	item := sent[0].Items[0]
	require.Equal(t, "Process 100 is not running in a GPU environment (user alice).", item.Text)
	require.Equal(t, "process 100 will be ended", item.Follows)
	require.True(t, item.Pending)
	require.Equal(t, "a", item.Host)

	cycleOf(t.Context(), c, 2, policy)
	cycleOf(t.Context(), c, 3, policy)
	require.Len(t, sent, 1, "that it is ended waits for the digest")
	require.Len(t, c.Memory.Mail.Users["alice"].Items, 1)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(data), "lists the user under `opt-out`"), "before and when it is ended: the record is complete")
	require.Equal(t, 2, strings.Count(string(data), "doesn't report the name of this user"))
	require.NotContains(t, string(data), `"reason":"not sent","user":"alice"`)
	require.Len(t, p.messages, 6, "the terminals show all of it")
}

// A cycle that does not count mails nothing, since the next one finds the same.
func TestNoMailFromACycleThatIsNotRecorded(t *testing.T) {
	var sent letters
	c := mailing(named(t, "alice"), &full{}, &sent)
	cycle := cycleOf(t.Context(), c, 1, strict{notify: true})
	require.Error(t, cycle.Unrecorded)
	require.Empty(t, sent)
	require.Empty(t, c.Memory.Mail.Users)
}

// A dry run has the Mailer say what would be sent, and neither records nor shows it.
func TestADryRunRecordsNoMail(t *testing.T) {
	p := named(t, "alice", "opted")
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var said letters
	c := mailing(p, &audit.Log{Path: path}, &said)
	c.DryRun = true
	cycleOf(t.Context(), c, 1, strict{notify: true})
	require.Len(t, said, 1)
	require.Empty(t, p.messages)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(data), `"told"`)
}

func TestMailWithoutTerminals(t *testing.T) {
	p := named(t, "alice")
	var sent letters
	c := mailing(p, nil, &sent)
	c.NoTerminals = true
	cycle := cycleOf(t.Context(), c, 1, strict{notify: true})
	require.Len(t, sent, 1)
	require.Empty(t, p.messages)
	require.Empty(t, cycle.Notified)
	require.Len(t, cycle.Results, 1)
}

// A host that makes up users costs each user no more than a line of the record.
func TestAHostThatMakesUpUsers(t *testing.T) {
	var users []snapshot.Username
	for i := range 300 {
		users = append(users, snapshot.Username(fmt.Sprint("user", i)))
	}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	var sent letters
	c := mailing(named(t, users...), &audit.Log{Path: path}, &sent)
	cycleOf(t.Context(), c, 1, strict{notify: true, warn: enforce.Warn{Cycles: 9}})
	require.Len(t, sent, 25, "a quarter of what all users get in an hour")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 156, strings.Count(string(data), "too many mails of this hour wait already"), "256 findings, and 100 users")
}

// outbox is a Mailer that calls sending first.
type outbox struct {
	letters
	sending func()
	unsent  []error
}

func (o *outbox) Send(l mail.Letter) {
	o.sending()
	o.letters.Send(l)
}

func (o *outbox) Unsent(_ mail.Letter, err error) { o.unsent = append(o.unsent, err) }

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
// one has mailed and run the hooks meanwhile.
func TestALeaseThatEndsBeforeMailAndHooks(t *testing.T) {
	for name, row := range map[string]struct {
		whileRecorded, whileSaved bool
		hooks, mails              int
	}{
		"it goes on leading":             {hooks: 1, mails: 1},
		"while it records":               {whileRecorded: true},
		"while the memory is on its way": {whileSaved: true, hooks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var leads atomic.Bool
				leads.Store(true)
				log := &slowLog{audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}, func() { leads.Store(leads.Load() && !row.whileRecorded) }}
				post := &outbox{sending: func() {}}
				var hooks hookEvents
				c := mailing(named(t, "alice"), log, nil)
				c.Mailing.Mailer = post
				term := remote.While(t.Context(), func() error {
					if leads.Load() {
						return nil
					}
					return election.ErrNotLeading
				})
				c.Sinks = append(c.Sinks, hooksink.Sink{Queue: &hooks, Now: c.Now, Leads: leads.Load})
				c.Store = storeFunc(func(controller.Saved) error {
					time.Sleep(time.Second) // the loop goes on
					leads.Store(!row.whileSaved && leads.Load())
					return nil
				})
				cycleOf(term, c, 1, strict{notify: true, warn: enforce.Warn{Cycles: 2}})
				require.Len(t, hooks, row.hooks)
				require.Len(t, post.letters, row.mails)
				require.Len(t, post.unsent, 1-row.mails)
				for _, err := range post.unsent {
					require.ErrorContains(t, err, "doesn't lead any more")
				}
			})
		})
	}
}

// The controller that sent an order runs the hooks for its outcome: no other one knows it.
func TestHooksOfAnOrderThatOutlastsALease(t *testing.T) {
	p := newFakeFleet(t)
	var hooks hookEvents
	c := p.controller(nil)
	c.Sinks = append(c.Sinks, hooksink.Sink{Queue: &hooks, Now: c.Now, Leads: func() bool { return false }})
	cycleOf(t.Context(), c, 1, strict{})
	require.Equal(t, hookEvents{"act 4 4 false"}, hooks)
}

// Who goes on with a memory must not mail what was mailed, wherever the one before was killed.
func TestMailLeavesAfterTheMemoryThatSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saved, mailed := 0, false
		post := &outbox{sending: func() {
			require.Equal(t, 2, saved)
			require.True(t, mailed, "as it was saved")
		}}
		c := mailing(named(t, "alice"), nil, nil)
		c.Mailing.Mailer, c.NoTerminals = post, true
		c.Store = storeFunc(func(s controller.Saved) error {
			alice := memoryOf(t, s, c.Now()).Mail.Users["alice"]
			mailed = alice != nil && len(alice.Items) == 0
			time.Sleep(time.Second)
			saved++
			return nil
		})
		cycleOf(t.Context(), c, 1, constant{})
		cycleOf(t.Context(), c, 2, strict{notify: true, warn: enforce.Warn{Cycles: 9}})
		require.Len(t, post.letters, 1)
	})
}
