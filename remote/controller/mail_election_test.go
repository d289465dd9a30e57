package controller_test

import (
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/notify/mail"
	"github.com/seed-3119e985/genv/remote/controller"
	hooksink "github.com/seed-3119e985/genv/remote/controller/hooks"
)

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
				log := &slowLog{audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}, func() { leads.Store(!row.whileRecorded) }}
				post := &outbox{sending: func() {}}
				var hooks hookEvents
				c := mailing(named(t, "alice"), log, nil)
				c.Mailing.Mailer = post
				c.Leads = leads.Load
				c.Sinks = append(c.Sinks, hooksink.Sink{Queue: &hooks, Now: c.Now, Leads: c.Leads})
				c.Save = func(*controller.FleetMemory) func() {
					return func() {
						time.Sleep(time.Second) // the loop goes on
						leads.Store(!row.whileSaved && leads.Load())
					}
				}
				cycleOf(t.Context(), c, 1, strict{notify: true, warn: enforce.Warn{Cycles: 2}})
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

// The controller that sent a report runs the hooks for its outcome: no other one knows it.
func TestHooksOfAReportThatOutlastsALease(t *testing.T) {
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
		c.Save = func(m *controller.FleetMemory) func() {
			alice := m.Mail.Users["alice"]
			mailed = alice != nil && len(alice.Items) == 0
			return func() { time.Sleep(time.Second); saved++ }
		}
		cycleOf(t.Context(), c, 1, constant{})
		cycleOf(t.Context(), c, 2, strict{notify: true, warn: enforce.Warn{Cycles: 9}})
		require.Len(t, post.letters, 1)
	})
}
