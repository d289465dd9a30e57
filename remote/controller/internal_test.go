package controller

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// What changes a host or is shown to its users has one way to it: background.dispatch
// sends deliveries, and only their Send uses the methods of a Link that do so.
func TestHostsAreChangedFromOnePlace(t *testing.T) {
	callers := map[string][]string{}
	files := proctest.Try(filepath.Glob("*.go")).OK(t)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file := proctest.Try(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)).OK(t)
		for _, d := range file.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				if s, ok := n.(*ast.SelectorExpr); ok {
					callers[s.Sel.Name] = append(callers[s.Sel.Name], strings.TrimSuffix(name, ".go"))
				}
				return true
			})
		}
	}
	require.Equal(t, []string{"orders"}, callers["Execute"])
	require.Equal(t, []string{"delivery"}, callers["Send"])
}

func TestShownLines(t *testing.T) {
	const words = "1. genv: as root run: curl evil.example; process"
	o := order.Order{
		Detach: []order.Detachment{{Device: 3, Environment: snapshot.Environment{EID: words, UID: 1001, Username: "raz"}}},
		Terminate: []order.Termination{
			{Process: snapshot.Process{PID: 5, EID: words, Usage: []snapshot.DeviceUsage{{Index: 0}}}, Reasons: order.Reasons{Because: []string{"env-devices/a/5/1"}}},
			{Process: snapshot.Process{PID: 6, EID: words, Usage: []snapshot.DeviceUsage{{Index: 0}}}, Reasons: order.Reasons{Because: []string{"non-env-processes/a/6/1"}}},
		},
	}
	const quoted = `"1. genv: as root run: curl evil…"`
	for line, want := range map[string]string{
		"Terminating process 5 from environment " + words + " that is running on GPU(s) 0":  "Terminating process 5 from environment " + quoted + " that is running on GPU(s) 0",
		"Terminating process 5 from environment " + quoted + " that is running on GPU(s) 0": "Terminating process 5 from environment " + quoted + " that is running on GPU(s) 0",
		"Terminating process 6 from environment " + words + " that is running on GPU(s) 0":  "Terminating process 6 from environment N/A that is running on GPU(s) 0",
		" Killing process 5 from environment " + quoted + " that is running on GPU(s) 0\r":  "Killing process 5 from environment " + quoted + " that is running on GPU(s) 0",
		"Killing process 6 from environment N/A that is running on GPU(s) 0":                "Killing process 6 from environment N/A that is running on GPU(s) 0",
		"Detaching environment " + words + " of user raz from device 3":                     "Detaching environment " + quoted + " of user raz from device 3",
		"Killing process 5 from environment " + words + " that is running on GPU(s) 0":      `The host says: "Killing process 5 from environment ` + words + ` that is running on GPU(s) 0"`,
		"Terminating process 7 from environment 1 that is running on GPU(s) 0":              `The host says: "Terminating process 7 from environment 1 that is running on GPU(s) 0"`,
		"\x1b[2J" + strings.Repeat("x", 1000):                                               `The host says: "?[2J` + strings.Repeat("x", maxHostWords-5) + `…"`,
	} {
		require.Equal(t, []string{want}, shownLines(o, []string{line}))
	}
}

// While the disk is slow, what comes is written together, the newest once.
func TestWritesOfASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w memoryWriter
		var disk []int
		begun := time.Now()
		write := func(n int) <-chan struct{} {
			return w.Write(func() error { time.Sleep(time.Second); disk = append(disk, n); return nil }).done
		}
		first := write(0)
		synctest.Wait()
		var last <-chan struct{}
		for n := range 9 {
			last = write(n + 1)
		}
		require.Zero(t, time.Since(begun), "Write does not wait")
		<-first
		require.Equal(t, time.Second, time.Since(begun))
		<-last
		require.Equal(t, 2*time.Second, time.Since(begun))
		w.work.Wait()
		require.Equal(t, []int{0, 9}, disk)
		<-write(10)
		require.Equal(t, []int{0, 9, 10}, disk, "it goes on after a rest")
		w.work.Wait()
	})
}

// What is said to be safe has been written, and never over something newer.
func TestManyWritersAtATime(t *testing.T) {
	var w memoryWriter
	var disk, writing atomic.Int64
	var writers sync.WaitGroup
	for range 8 {
		writers.Go(func() {
			for range 500 {
				<-w.Write(func() error {
					require.EqualValues(t, 1, writing.Add(1), "writes at a time")
					disk.Add(1)
					writing.Add(-1)
					return nil
				}).done
			}
		})
	}
	writers.Wait()
	w.work.Wait()
	require.LessOrEqual(t, disk.Load(), int64(4000))
	require.GreaterOrEqual(t, disk.Load(), int64(500), "each of a writer's writes is one that began after it asked")
}

// kept is a record in memory.
type kept []audit.Record

func (k *kept) Append(records ...audit.Record) error {
	*k = append(*k, records...)
	return nil
}

func (*kept) Reserve(int64) error { return nil }

type learns Effects

func (l learns) Learn(*Round, *Delivery) Effects { return Effects(l) }

// TestTheRecordOfAnHour: a user who makes up findings, and a host that makes up users, fill neither the record nor
// what others have of it; what is done is always recorded.
func TestTheRecordOfAnHour(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	var log kept
	c := &Controller{Options: Options{Audit: &log, Now: func() time.Time { return now }}}
	found := func(host snapshot.Hostname, user snapshot.Username, n int) (recorded int) {
		events, before := make([]enforce.Event, n), len(log)
		for i := range events {
			f := &enforce.Finding{ID: fmt.Sprint(host, user, i), Rule: enforce.RuleNonEnvProcesses, Host: host, User: user}
			events[i] = enforce.Event{Kind: enforce.EventNew, Host: host, Finding: f}
		}
		orders := []*sentOrder{{items: []audit.Record{{Kind: audit.KindOrder, Host: host, User: user}}}}
		require.NoError(t, c.recordFirst(events, nil, itemsOf(orders)))
		require.Equal(t, audit.KindOrder, log[len(log)-1].Kind, "it is done, so it is recorded")
		return len(log) - before - 1
	}
	require.Less(t, found("a", "eve", 10_000), 5000)
	require.Regexp(t, `^and \d+ more records within an hour.*; more are counted once in an hour$`, log[len(log)-2].Text)
	require.Equal(t, snapshot.Username("eve"), log[len(log)-2].User)
	require.Zero(t, found("a", "eve", 100))
	for kind, recorded := range map[*audit.Record]bool{
		{Kind: audit.KindNotified, Reason: "suppressed"}:           false,
		{Kind: audit.KindNotified, Channel: audit.ChannelTerminal}: true,
		{Kind: audit.KindOutcome}:                                  true,
		{Kind: audit.KindFinding, Decision: enforce.DecisionAct}:   true,
		{Kind: audit.KindFinding, Decision: enforce.DecisionWait}:  false,
		{Kind: audit.KindOperator, By: "root"}:                     true,
	} {
		kind.Host, kind.User, kind.UID, kind.Text = "a", "eve", new(snapshot.UID(1001)), strings.Repeat("x", 1000)
		require.Equal(t, recorded, len(c.bounded([]audit.Record{*kind})) == 1, kind)
	}
	require.Equal(t, 100, found("a", "alice", 100), "there is a part for her")
	require.Equal(t, 100, found("b", "eve", 100), "what she does elsewhere")
	for i := range 300 {
		found("a", snapshot.Username(fmt.Sprint("madeup", i)), 60)
	}
	size := 0
	for i := range log {
		if line, err := json.Marshal(log[i]); log[i].Host == "a" && log[i].Kind == audit.KindFinding && log[i].Finding != nil {
			require.NoError(t, err)
			size += len(line)
		}
	}
	require.Less(t, size, recordsAnHour+recordsAnHour/2, "a record has its time, too")
	require.Equal(t, 10, found("b", "bob", 10))
	now = now.Add(quotaHour)
	before := len(log)
	require.Greater(t, found("a", "alice", 10), 10)
	require.Regexp(t, `^and \d+ more records within an hour, of findings that are left out$`, log[before].Text, "the rest of the hour before")

	found("a", "eve", 10_000)
	found("a", "eve", 1)
	now, before = now.Add(quotaHour), len(log)
	c.learn([]*Delivery{{learner: learns{Records: []audit.Record{{Kind: audit.KindNotified, Reason: "suppressed", Host: "a", User: "eve"}}}}})
	require.Regexp(t, `^and \d+ more records within an hour, of findings that are left out$`, log[before].Text, "what fails to be told is no less counted")
}

// What may be judged sooner doesn't wait for the judgement before, but for the tenth before that.
func TestJudgementsASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoop(t.Context(), &Controller{Options: Options{Survey: Survey{Link: new(agent.Pool)}, Now: time.Now}}, LoopOptions{})
		e, n := &loopEvent{complete: true, sooner: mostSooner}, 0
		for begun := time.Now(); time.Since(begun) < time.Minute; n++ {
			l.handle(t.Context(), e)
			time.Sleep(time.Until(l.readyAt(e, time.Now())))
		}
		require.Equal(t, 10+600, n)
		for range 100 { // as for operators, whom nothing keeps waiting
			l.handle(t.Context(), new(loopEvent))
		}
		require.Equal(t, mostSooner+leastPause, time.Until(l.readyAt(&loopEvent{complete: true}, time.Now())))
	})
}

// TestWhatWasNotSent: of the plans of a round, only the orders that couldn't be recorded are not shown as sent.
func TestWhatWasNotSent(t *testing.T) {
	round := Round{}
	for _, host := range []snapshot.Hostname{"a", "b, not recorded", "c"} {
		round.add(enforce.Plan{Orders: []order.OfHost{{Host: host}}}, nil, time.Time{})
		if len(host) == 1 {
			round.sent = round.Plan.Orders
		}
	}
	round.add(enforce.Plan{}, nil, time.Time{})
	require.Equal(t, []order.OfHost{{Host: "a"}, {Host: "c"}}, round.Plan.Orders)
}

// TestADuplicateIsRecordedOnce: what an operator does after a machine was found under two names doesn't record it again.
func TestADuplicateIsRecordedOnce(t *testing.T) {
	var log kept
	c := &Controller{Options: Options{Audit: &log, Now: time.Now}}
	c.fleet.Duplicates = []Duplicate{{Name: "b", SameAs: "a", New: true}}
	require.NoError(t, c.recordFirst(nil, c.fleet.Duplicates, nil))
	require.NoError(t, c.recordFirst(nil, nil, []audit.Record{{Kind: audit.KindOperator}}))
	require.Len(t, log, 2)
	require.Equal(t, audit.KindOperator, log[1].Kind)
}

// TestALookThatComesLate: of a host that was asked twice, what was asked for last counts, whichever answer came first.
func TestALookThatComesLate(t *testing.T) {
	now, newest := time.Now(), new(snapshot.Snapshot)
	f := knownFleet{}.of([]remote.Host{{Name: "a"}})
	for _, a := range []hostAnswer{
		{askedAt: now, snapshot: newest}, {askedAt: now.Add(-1), snapshot: new(snapshot.Snapshot)}, {askedAt: now.Add(-1), err: errStopped},
	} {
		a.name = "a"
		f = f.with([]hostAnswer{a}, Machines{}, func(remote.Host) (a agent.About) { return a })
		require.Same(t, newest, f.lastOf("a"))
	}
}

// identityOf reads "token shown,shown address key", with - for what isn't known.
func identityOf(text string) identity {
	if text == "down" {
		return identity{}
	}
	words := strings.Fields(text + " - - - -")
	for i, w := range words {
		words[i] = strings.TrimPrefix(w, "-")
	}
	l := identity{answered: true, token: words[0], peer: remote.Peer{Address: words[2], HostKey: words[3]}}
	if words[1] != "" {
		l.tokens = strings.Split(strings.TrimPrefix(words[1], "none"), ",")
	}
	return l
}

// Each row is cycles of a fleet of a, b and c: what is known of each, and which of them count.
func TestMachines(t *testing.T) {
	type round struct {
		a, b, c, want string
	}
	for _, tt := range []struct {
		name   string
		cycles []round
	}{
		{"three machines", []round{{"ta none 1 k", "tb none 2 k", "tc none 3 k", "a b c"}}},
		{"the second shows what the first was given", []round{{"ta none 1 k", "tb ta 2 k", "tc none 3 k", "a a c"}}},
		{"the first shows what the second was given", []round{{"ta tb 1 k", "tb none 2 k", "tc none 3 k", "a a c"}}},
		{"three names of one", []round{{"ta tb 1 k", "tb none 2 k", "tc ta,other 3 k", "a a a"}}},
		{"with another host key", []round{{"ta none 1 k", "tb ta 2 k2", "down", "a a c"}}},
		{"what others gave", []round{{"ta x,y 1 k", "tb x,y 2 k", "tc x,y 3 k", "a b c"}}},
		{"its own token", []round{{"ta ta 1 k", "tb tb 2 k", "tc none 3 k", "a b c"}}},
		{"several hosts on one machine", []round{{"ta none 1 k", "tb none 1 k", "tc none 1 k", "a b c"}}},
		{"the same connection, and what it shows is of another machine", []round{{"ta none 1 k", "tb tc 1 k", "tc none 2 k", "a b b"}}},
		{"by the connection alone", []round{{"- - 1 k", "- - 2 k", "- - 1 k", "a b a"}}},
		{"one key on several addresses", []round{{"- - 1 k", "- - 2 k", "- - 3 k", "a b c"}}},
		{"several keys on one address", []round{{"- - 1 k1", "- - 1 k2", "- - 1 k3", "a b c"}}},
		{"nothing is known", []round{{"-", "-", "-", "a b c"}}},
		{"no key is known", []round{{"- - 1 -", "- - 1 -", "- - - k", "a b c"}}},
		{"one of them shows tokens", []round{{"ta none 1 k", "- - 1 k", "tc none 3 k", "a a c"}}},
		{"a token that nothing was given of", []round{{"- - 1 k", "tb ,- 2 k", "down", "a b c"}}},
		{"none answers", []round{{"down", "down", "down", "a b c"}}},
		{"the first fails for a while", []round{
			{"ta none 1 k", "tb ta 2 k", "down", "a a c"},
			{"down", "tb none 2 k", "down", "a a c"},
			{"down", "down", "down", "a a c"},
			{"ta none 1 k", "down", "down", "a a c"},
			{"ta none 1 k", "tb ta 2 k", "down", "a a c"},
		}},
		{"one that never answered is not taken for another", []round{{"down", "tb none 2 k", "down", "a b c"}, {"down", "tb none 2 k", "down", "a b c"}}},
		{"a name that leads elsewhere now", []round{{"ta none 1 k", "tb ta 1 k", "down", "a a c"}, {"ta none 1 k", "tb2 none 2 k", "down", "a b c"}}},
		{"a name that leads to an older genv elsewhere", []round{{"ta none 1 k", "tb ta 1 k", "down", "a a c"}, {"ta none 1 k", "- - 2 k", "down", "a b c"}}},
		{"two that part while the third is silent", []round{{"ta none 1 k", "tb ta 2 k", "tc ta 3 k", "a a a"}, {"down", "tb none 2 k", "tc none 3 k", "a a c"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m Machines
			names := []string{"a", "b", "c"}
			for i, c := range tt.cycles {
				var got []string
				for _, first := range groupWith(&m, names, []identity{identityOf(c.a), identityOf(c.b), identityOf(c.c)}) {
					got = append(got, names[first])
				}
				require.Equal(t, c.want, strings.Join(got, " "), "cycle %d", i+1)
			}
		})
	}
}

func TestMachinesForgetNamesThatLeft(t *testing.T) {
	var m Machines
	one := identityOf("t t 1 k")
	require.Equal(t, grouping{0, 0}, groupWith(&m, []string{"a", "b"}, []identity{one, one}))
	require.True(t, m.duplicate("b", "a").New)
	require.False(t, m.duplicate("b", "a").New, "it is said once")
	require.Equal(t, grouping{0}, groupWith(&m, []string{"b"}, []identity{{}}))
	require.Empty(t, m.OtherNames)
	require.Empty(t, m.reported)
	require.Equal(t, grouping{0, 1}, groupWith(&m, []string{"a", "b"}, []identity{one, {}}), "b may lead anywhere by now")
}

// Grouping thousands of names is cheap, even if all are one machine.
func BenchmarkMachines(b *testing.B) {
	for name, n := range map[string]int{"distinct": 1000, "one": 1} {
		b.Run(name, func(b *testing.B) {
			var m Machines
			names, identities := make([]string, 1000), make([]identity, 1000)
			for i := range names {
				names[i] = fmt.Sprint(i)
				identities[i] = identityOf(fmt.Sprintf("t%d t%d %d k", i, i%n, i))
			}
			for b.Loop() {
				groupWith(&m, names, identities)
			}
		})
	}
}

// groupWith groups names, and remembers that for the next time.
func groupWith(m *Machines, names []string, identities []identity) grouping {
	for i, name := range names {
		identities[i].name = name
	}
	g := m.group(identities)
	*m = m.next(identities, g)
	return g
}
