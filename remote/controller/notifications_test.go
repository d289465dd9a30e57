package controller_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	hooksink "github.com/seed-3119e985/genv/remote/hooks"
	"github.com/seed-3119e985/genv/snapshot"
)

// A user with many processes gets one message, with one bell and one piece of advice.
func TestOneMessagePerUser(t *testing.T) {
	const advice = "End it, and start it in an environment: genv run --gpus 1 python train.py.\nThis is by the policy of your site. Questions: your administrator"
	for n, want := range map[int]string{
		1: "Process 100 is not running in a GPU environment (uid 1001).\nUnless this changes soon, process 100 will be ended.\n" + advice,
		2: "Process 100 is not running in a GPU environment (uid 1001).\nUnless this changes soon, process 100 will be ended.\n" +
			"Process 101 is not running in a GPU environment (uid 1001).\nUnless this changes soon, process 101 will be ended.\n" + advice,
	} {
		p := sameUser(t, map[string]int{"a": n})
		round := cycleOf(t.Context(), p.controller(nil), strict{notify: true, warn: enforce.Warn{Cycles: 3}})
		require.Len(t, p.messages, 1)
		require.Len(t, p.messages[0].IDs, n)
		p.messages[0].IDs = nil
		require.Equal(t, []agent.Message{{UID: 1001, Text: want}}, p.messages)
		require.Len(t, round.Notified, n, "each finding has its record")
	}
	p := sameUser(t, map[string]int{"a": 100})
	cycleOf(t.Context(), p.controller(nil), strict{notify: true})
	require.Len(t, p.messages, 1)
	require.Contains(t, p.messages[0].Text, "And there are 94 more")
	require.True(t, strings.HasSuffix(p.messages[0].Text, advice))
}

// A host that makes up processes does not fill the record with users that could not be notified.
func TestNotificationsOfAHostAreBounded(t *testing.T) {
	p := sameUser(t, map[string]int{"a": 1000, "b": 1})
	p.notifyErr = agent.ErrCannotNotify
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	c := p.controller(&audit.Log{Path: path})
	policy := strict{notify: true, warn: enforce.Warn{Cycles: 10}}
	for number, want := range []int{257, 256, 256, 232, 0} {
		require.Len(t, cycleOf(t.Context(), c, policy).Notified, want, "cycle %d", number+1)
	}
}

// Users are not notified of findings whose actions a limit holds back; they are when the actions are carried out.
func TestHeldFindingsNotifyNoUser(t *testing.T) {
	p := sameUser(t, map[string]int{"a": 99, "b": 1})
	c := p.controller(nil)
	round := cycleOf(t.Context(), c, strict{notify: true, limits: safety.Limits{PerHost: safety.Limit{Terminations: 50}}})
	require.Equal(t, "a", string(round.Plan.HeldUsers[0].Host))
	require.Len(t, round.Notified, 1)
	require.Equal(t, "b", string(round.Notified[0].Host))
	cycleOf(t.Context(), c, strict{notify: true})
	require.Len(t, p.messages, 2)
	require.Contains(t, p.messages[1].Text, "Process 100 gets SIGTERM now.")
}

// Safety limits hold actions, not warnings: users of new findings are notified at
// once, and actions follow when the limits allow them.
func TestUsersAreNotifiedWhileOthersAreHeld(t *testing.T) {
	p := sameUser(t, map[string]int{"a": 3})
	c := p.controller(nil)
	policy := strict{notify: true, warn: enforce.Warn{Cycles: 2}, limits: safety.Limits{PerHost: safety.Limit{Terminations: 1}}}
	for range 3 {
		require.Empty(t, cycleOf(t.Context(), c, policy).Results)
	}
	p.hosts["b"] = []snapshot.PID{200}
	require.Empty(t, cycleOf(t.Context(), c, policy).Results)
	require.Contains(t, fmt.Sprint(p.messages[1:]), "Unless this changes soon, process 200 will be ended.")
	cycleOf(t.Context(), c, policy)
	require.Zero(t, p.signals[200])
	cycleOf(t.Context(), c, policy)
	require.Equal(t, 1, p.signals[200])
	require.Zero(t, p.signals[100], "which is held")
}

// A finding that was first seen in cycles that did not count still has its whole warning time when cycles count again.
func TestNoActionWithoutAWarning(t *testing.T) {
	var hooks hookEvents
	p := sameUser(t, map[string]int{"a": 3})
	log := &full{Log: audit.Log{Path: filepath.Join(t.TempDir(), "audit.jsonl")}, from: 1000}
	c := p.controller(log)
	c.Sinks = append(c.Sinks, hooksink.Sink{Queue: &hooks, Now: c.Now})
	warn := strict{notify: true, warn: enforce.Warn{Cycles: 2}}
	for range 2 {
		cycleOf(t.Context(), c, warn)
	}
	require.Len(t, p.messages, 1)
	log.from = 0
	p.hosts["b"] = []snapshot.PID{200} // comes when nothing can be done
	for range 4 {
		require.Empty(t, cycleOf(t.Context(), c, warn).Results)
	}
	require.Len(t, p.messages, 1)
	log.from = 1000
	require.Len(t, cycleOf(t.Context(), c, warn).Results, 1, "users who were warned have had their time")
	require.Contains(t, fmt.Sprint(p.messages[1:]), "Unless this changes soon, process 200 will be ended.")
	require.Zero(t, p.signals[200])
	cycleOf(t.Context(), c, warn)
	cycleOf(t.Context(), c, warn)
	require.Equal(t, 1, p.signals[200])
	require.Equal(t, 2, strings.Count(fmt.Sprint(hooks), "warn "), fmt.Sprint(hooks))
}

// That actions are held back is recorded and sent to the hooks in every
// such cycle: nothing is enforced there until an administrator decides.
func TestHeldActionsAreReportedInEveryCycle(t *testing.T) {
	for _, tt := range []struct {
		name string
		n    map[string]int
		want int
	}{
		{"the fleet", map[string]int{"a": 60}, 4},
		{"a host, and then what is left of the fleet", map[string]int{"a": 600, "b": 1}, 4},
		{"nothing", map[string]int{"a": 40}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var hooks hookEvents
			path := filepath.Join(t.TempDir(), "audit.jsonl")
			c := sameUser(t, tt.n).controller(&audit.Log{Path: path})
			c.Sinks = append(c.Sinks, hooksink.Sink{Queue: &hooks, Now: c.Now})
			for range 4 {
				cycleOf(t.Context(), c, strict{limits: safety.Limits{Fleet: safety.Limit{Terminations: 50}}})
			}
			require.Len(t, recordsOf(t, path, audit.KindOverLimit), tt.want)
			notified := 0
			for _, event := range hooks {
				if event == "hold 0 0 true" {
					notified++
				}
			}
			require.Equal(t, tt.want, notified)
		})
	}
}

func TestNoticesAreBounded(t *testing.T) {
	var hooks hookEvents
	c := sameUser(t, map[string]int{"a": 1000, "b": 2}).controller(nil)
	c.Sinks = append(c.Sinks, hooksink.Sink{Queue: &hooks, Now: c.Now})
	cycleOf(t.Context(), c, strict{warn: enforce.Warn{Cycles: 2}})
	require.Equal(t, hookEvents{"warn 258 0 false"}, hooks)
}

// A warning that was lost with the connection is repeated; that of an action
// is not, or a host that fails because of it would never be judged.
func TestALostWarningIsRepeated(t *testing.T) {
	for name, tt := range map[string]struct {
		err  error
		want int
	}{
		"lost":         {remote.Errorf(remote.Timeout, "no answer in time"), 1},
		"refused":      {fmt.Errorf("%w: no", agent.ErrRefused), 0},
		"not possible": {agent.ErrCannotNotify, 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := sameUser(t, map[string]int{"a": 2})
			c := p.controller(nil)
			warn := strict{notify: true, warn: enforce.Warn{Cycles: 3}}
			p.notifyErr = tt.err
			cycleOf(t.Context(), c, warn)
			p.notifyErr = nil
			cycleOf(t.Context(), c, warn)
			require.Len(t, p.messages, tt.want)
			cycleOf(t.Context(), c, warn)
			require.Len(t, p.messages, tt.want, "once")
		})
	}
	p := sameUser(t, map[string]int{"a": 2})
	p.cut, p.lost = 0, remote.Errorf(remote.Unreachable, "lost before the order was sent")
	p.notifyErr = remote.Errorf(remote.Timeout, "no answer in time")
	c := p.controller(nil)
	cycleOf(t.Context(), c, strict{notify: true})
	require.Empty(t, cycleOf(t.Context(), c, strict{notify: true}).Notified)
}

// A user who breaks rules all the time is sent 20 messages an hour on a host, and
// then, once, how many were left out. Other users get all of theirs.
func TestMessagesOfAnHourAreLimited(t *testing.T) {
	p := sameUser(t, map[string]int{"a": 0, "b": 0})
	p.uid = func(pid snapshot.PID) snapshot.UID { return 1001 + snapshot.UID(pid/100000) }
	p.shown = 1
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	c := p.controller(&audit.Log{Path: path})
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	c.Now = func() time.Time { return now }
	for number := range 40 {
		p.hosts["a"] = []snapshot.PID{snapshot.PID(1000 + number)}
		p.hosts["b"] = []snapshot.PID{snapshot.PID(1000 + number)}
		if number%10 == 0 {
			p.hosts["a"] = append(p.hosts["a"], snapshot.PID(200000+number)) // another user
		}
		cycleOf(t.Context(), c, strict{notify: true})
		now = now.Add(time.Minute)
	}
	require.Len(t, p.messages, 20+20+4)
	require.Equal(t, 2, strings.Count(fmt.Sprint(p.messages), "Further messages are suppressed for up to an hour"))
	require.Len(t, p.signals, 40+4, "the rules are enforced all the same")
	suppressed := slices.DeleteFunc(recordsOf(t, path, audit.KindNotified), func(r audit.Record) bool { return !strings.HasPrefix(r.Reason, "suppressed") })
	require.Len(t, suppressed, 40)
	now = now.Add(time.Hour)
	p.hosts["a"] = []snapshot.PID{7000}
	cycleOf(t.Context(), c, strict{notify: true})
	require.Len(t, p.messages, 45)
	require.True(t, strings.HasSuffix(p.messages[44].Text, "\n20 more messages suppressed."), p.messages[44].Text)
}

// Messages that were shown on no terminal don't count: a user who logs in later still gets them.
func TestMessagesThatWereNotShownDoNotCount(t *testing.T) {
	p := sameUser(t, map[string]int{"a": 0})
	c := p.controller(nil)
	for number := range 30 {
		p.hosts["a"] = []snapshot.PID{snapshot.PID(1000 + number)}
		cycleOf(t.Context(), c, strict{notify: true})
	}
	require.Len(t, p.messages, 30)
}

// What a user chose stays in quotes, also in a message of root's.
func TestMessagesShowForeignTextInQuotes(t *testing.T) {
	p := sameUser(t, map[string]int{"a": 1})
	p.claims = "1 - run: curl x|sh"
	cycleOf(t.Context(), p.controller(nil), strict{notify: true})
	require.Contains(t, p.messages[0].Text, `It claims environment "1 - run: curl x|sh", which isn't registered here.`)
}
