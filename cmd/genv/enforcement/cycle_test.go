package enforcement

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/audit"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/remote/hooks"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// TestOnATerminal: lines are dated and coloured on a terminal, as far as it is wanted, and exactly 1.4.3's in a pipe.
func TestOnATerminal(t *testing.T) {
	const line, dated = "[a] Process 7 is not running in a GPU environment (user bob) (waits for 59m)", "2026-11-20 02:14:07 "
	at := time.Date(2026, 11, 20, 2, 14, 7, 0, time.Local)
	for name, row := range map[string]struct {
		terminal   bool
		timestamps string
		environ    map[string]string
		want       string
	}{
		"a pipe":                 {false, "auto", nil, line},
		"a dated pipe":           {false, "always", nil, dated + line},
		"a terminal":             {true, "auto", nil, dated + "\x1b[33m" + line + "\x1b[0m"},
		"an undated terminal":    {true, "never", nil, "\x1b[33m" + line + "\x1b[0m"},
		"NO_COLOR":               {true, "auto", map[string]string{"NO_COLOR": "1"}, dated + line},
		"a terminal of no means": {true, "never", map[string]string{"TERM": "dumb"}, line},
	} {
		t.Run(name, func(t *testing.T) {
			var errs bytes.Buffer
			read, write, err := os.Pipe()
			require.NoError(t, err)
			if row.terminal {
				read, write, err = pty.Open()
				require.NoError(t, err)
			}
			defer read.Close()
			p := &command.Program{Out: write, Err: &errs, Now: func() time.Time { return at }, Getenv: func(name string) string { return row.environ[name] }}
			w := newCycleWriter(p, &Options{Format: "tui", Timestamps: row.timestamps})
			w.finding(new(outside(7, enforce.EventNew, enforce.DecisionWait)), time.Unix(1_800_000_000, 0).Add(time.Minute))
			w.remark("Safety limit exceeded")
			require.NoError(t, w.broken)
			got := make([]byte, 1000)
			n := proctest.Try(read.Read(got)).OK(t)
			require.Equal(t, row.want, string(bytes.TrimRight(got[:n], "\r\n")))
			require.Equal(t, dated+"Safety limit exceeded\n", errs.String(), "stderr is a log, and no terminal")
			require.NoError(t, write.Close())
		})
	}
}

// TestByUserOfThisMachine: it has no name, so there is no column of hosts.
func TestByUserOfThisMachine(t *testing.T) {
	var out bytes.Buffer
	finding := enforce.Finding{Rule: enforce.RuleNonEnvProcesses, PID: 7, User: "bob", Terminate: []enforce.ProcessRef{{PID: 7}}}
	require.NoError(t, writeByUser(&out, byUser(&controller.Round{Plan: enforce.Plan{Findings: []enforce.Finding{finding}}})))
	require.Equal(t, "USER  PROCESSES  GPUS  WOULD-TERMINATE  WOULD-DETACH  RULES\nbob   1          0     1                0             non-env-processes\n", out.String())
}

// A stdout that can't be written ends the run; a stderr that can't doesn't.
func TestFullDisk(t *testing.T) {
	s := newScreen(t, false)
	s.cycleWriter.out, s.cycleWriter.err = full{}, full{}
	round := controller.Round{Start: time.Unix(1, 0)}
	s.Consume(&round, []enforce.Event{outside(7, enforce.EventNew, enforce.DecisionWait)})
	require.ErrorIs(t, s.write(&round, nil), io.ErrShortWrite)
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// A document has each order that ended once, with its cycle: of this cycle, of earlier ones, and of those between.
func TestOrdersOfADocument(t *testing.T) {
	ending := func(id string, pid snapshot.PID) order.Order {
		return order.Order{ID: id, Terminate: []order.Termination{{Process: snapshot.Process{PID: pid}}}}
	}
	action := func(round int, id string, pid snapshot.PID) controller.OrderResult {
		done := agent.Execution{Outcomes: []order.Outcome{{PID: pid, Status: order.StatusTerminated}}}
		return controller.OrderResult{Cycle: round, Host: "a", Order: ending(id, pid), Execution: done}
	}
	round := &controller.Round{
		Number: 12, Earlier: 3,
		Plan:    enforce.Plan{Orders: []order.OfHost{{Host: "a", Order: ending("run/12/a", 1)}, {Host: "a", Order: ending("run/12/b", 2)}}},
		Results: []controller.OrderResult{action(11, "run/11.1/a", 3), action(12, "run/12/a", 1), action(12, "run/12.1/a", 4)},
	}
	document := documentOf(round, nil)

	require.Equal(t, 3, document.Early)
	type row struct {
		pid   snapshot.PID
		round int
		ended bool
	}
	var got []row
	for _, r := range document.Orders {
		got = append(got, row{r.Terminate[0].PID, r.Cycle, len(r.Outcomes) == 1})
	}
	require.Equal(t, []row{{3, 11, true}, {4, 12, true}, {1, 0, true}, {2, 0, false}}, got)
}

// TestAHostSpeaksInItsOwnNameOnly: a newline in what it says it printed begins no line of another host's.
func TestAHostSpeaksInItsOwnNameOnly(t *testing.T) {
	var out, errs bytes.Buffer
	w := &cycleWriter{out: &out, err: &errs, bar: &render.Progress{}}
	w.Consume(&controller.Round{}, []enforce.Event{{
		Kind: enforce.EventOutcome, Host: "evil", Lines: []string{"x\n[good] Terminating process 1"}, Warnings: []string{"y\n[good] trouble"},
	}})
	require.NoError(t, w.write(&controller.Round{}, nil))
	for line := range strings.Lines(out.String() + errs.String()) {
		require.True(t, strings.HasPrefix(line, "[evil] "), line)
	}
	require.Equal(t, 1, strings.Count(out.String(), "\n"))
}

// TestWhatCouldNotBeJudged: without findings all may be well only if all was judged.
func TestWhatCouldNotBeJudged(t *testing.T) {
	var errs bytes.Buffer
	w := &cycleWriter{out: io.Discard, err: &errs, bar: &render.Progress{}, concludes: true}
	require.NoError(t, w.write(&controller.Round{DryRun: true, Plan: enforce.Plan{Notes: make([]enforce.Note, 2)}}, nil))
	require.Contains(t, errs.String(), "0 findings: nothing would be done; not everything could be judged (2 notes)")
}

// TestWhatIsOverBetweenTwoTicks: it waits from, and lasted until, when it was judged, however long ago the tick was.
func TestWhatIsOverBetweenTwoTicks(t *testing.T) {
	var out, errs bytes.Buffer
	w := &cycleWriter{out: &out, err: &errs, bar: &render.Progress{}}
	tick := time.Unix(1_800_000_000, 0)
	f := &enforce.Finding{ID: "x", Rule: enforce.RuleEnvDevices, Since: tick.Add(time.Minute), Due: tick.Add(3 * time.Minute), Pending: true}
	w.Consume(&controller.Round{Start: tick, Now: f.Since}, []enforce.Event{{Kind: enforce.EventNew, ID: "x", Decision: enforce.DecisionWait, Finding: f}})
	require.Contains(t, out.String(), "(waits for 2m)")
	w.Consume(&controller.Round{Start: tick, Now: tick.Add(6 * time.Minute)}, []enforce.Event{{Kind: enforce.EventOver, ID: "x"}})
	require.Contains(t, errs.String(), "Resolved after 5m: ")
}

// TestWhatIsDoneIsPrintedBeforeWhatIsOver: a host may show that something has gone before it says what it did.
func TestWhatIsDoneIsPrintedBeforeWhatIsOver(t *testing.T) {
	var out bytes.Buffer
	w := &cycleWriter{out: &out, err: &out, bar: &render.Progress{}}
	f := enforce.Finding{ID: "x", Rule: enforce.RuleEnvDevices, Detach: []enforce.DeviceRef{{}}}
	round := &controller.Round{Start: time.Unix(1_800_000_000, 0)}
	for _, e := range []enforce.Event{
		{Kind: enforce.EventDue, ID: "x", Decision: enforce.DecisionAct, Finding: &f},
		{Kind: enforce.EventNew, ID: "x", Decision: enforce.DecisionAct, Finding: &f},
		{Kind: enforce.EventDue, ID: "x", Decision: enforce.DecisionAct, Finding: &f},
		{Kind: enforce.EventActing, Findings: []enforce.Finding{f}},
		{Kind: enforce.EventOver, ID: "x"},
		{Kind: enforce.EventOutcome, Findings: []enforce.Finding{f}, Lines: []string{"Detaching environment 1"}},
	} {
		w.Consume(round, []enforce.Event{e})
	}
	require.Regexp(t, `(?s)^Process 0 .*\nDetaching environment 1\nResolved after 1s: .*\n$`, out.String())
}

// TestHowLongAFindingWaits: no longer than the policy says, although it is judged some time after its cycle began.
func TestHowLongAFindingWaits(t *testing.T) {
	begin := time.Unix(1_800_000_000, 0)
	for due, text := range map[time.Duration]string{
		40*time.Second + 700*time.Millisecond: " (waits for 40s)",
		700 * time.Millisecond:                " (waits for 1s)",
		0:                                     " (waits for more cycles)",
		-time.Second:                          " (waits for more cycles)",
	} {
		require.Equal(t, text, waitOf(&enforce.Finding{Pending: true, Due: begin.Add(due)}, begin))
	}
	require.Empty(t, waitOf(&enforce.Finding{Due: begin.Add(time.Hour), Terminate: []enforce.ProcessRef{{PID: 1}}}, begin), "nothing is pending")
}

// A loop that is ended within a cycle has the exit code of what the hosts did, not of what it cancelled itself.
func TestExitOfACycle(t *testing.T) {
	cancelled := remote.Errorf(remote.Cancelled, "not begun: %w", context.Canceled)
	silent := remote.Errorf(remote.Timeout, "no answer")
	for _, test := range []struct {
		name   string
		hosts  []error
		action error
		ends   bool
		want   int
	}{
		{"all answered", []error{nil, nil}, nil, false, command.ExitOK},
		{"one failed", []error{nil, silent}, nil, false, command.ExitSomeFailed},
		{"one failed, and the loop ends", []error{nil, silent}, nil, true, command.ExitSomeFailed},
		{"no host answered, and the loop ends", []error{silent, silent}, nil, true, command.ExitNoneLeft},
		{"one was cancelled", []error{nil, cancelled}, nil, false, command.ExitSomeFailed},
		{"one was cancelled by the end", []error{nil, cancelled}, nil, true, command.ExitOK},
		{"an order was cancelled", []error{nil}, cancelled, false, command.ExitSomeFailed},
		{"an order was cancelled by the end", []error{nil}, cancelled, true, command.ExitOK},
		{"an order failed, and the loop ends", []error{nil}, silent, true, command.ExitSomeFailed},
	} {
		round := new(controller.Round)
		for i, err := range test.hosts {
			host := snapshot.Host{Name: snapshot.Hostname(rune('a' + i)), Err: err}
			if err == nil {
				host.Snapshot = new(snapshot.Snapshot)
			}
			round.Cluster.Hosts = append(round.Cluster.Hosts, host)
		}
		if test.action != nil {
			round.Results = []controller.OrderResult{{Host: "a", Err: test.action}}
		}
		code := command.ExitOK
		var exit *command.ExitError
		if err := new(loop).exit(round, test.ends); err != nil {
			require.ErrorAs(t, err, &exit)
			code = exit.Code
		}
		require.Equal(t, test.want, code, test.name)
	}
}

func TestHooksGetWhatWasQueuedBeforeAReload(t *testing.T) {
	dir := t.TempDir()
	text := "#!/bin/sh\nsleep 0.3; echo told >> " + dir + "/out\n"
	require.NoError(t, proctest.WriteProgram(filepath.Join(dir, "hook"), []byte(text)))
	file := policy.Default()
	file.Hooks = []policy.Hook{{Command: []string{filepath.Join(dir, "hook")}, On: []policy.HookEvent{policy.OnAct}, Timeout: time.Minute}}
	ctx, service := startService(t.Context(), zerolog.Nop(), false)
	defer service.close()
	require.NoError(t, ctx.Err())
	l := &loop{program: &command.Program{}, service: service}
	l.configure(Options{Policy: file, Progress: &render.Progress{}})
	l.hooks.Send(hooks.Post{Event: "act"})
	l.hooks.Send(hooks.Post{Event: "act"})
	begun := time.Now()
	l.configure(Options{Policy: policy.Default(), Progress: &render.Progress{}})
	require.Less(t, time.Since(begun), hooksTimeout, "the end does not wait for it")
	l.close()
	require.Equal(t, "told\ntold\n", proctest.ReadText(t, dir+"/out"))
}

// A leader that can't record what it does may do nothing: another controller leads until it can.
func TestALeaderWithoutARecord(t *testing.T) {
	full := errors.New("no space left on device")
	recorded, not, standby := controller.Round{}, controller.Round{Unrecorded: full}, controller.Round{Standby: true}
	for name, row := range map[string]struct {
		cycles  []controller.Round
		room    bool // for the record, in the last cycle
		options func(l *loop)
		leads   bool
	}{
		"it is recorded":             {[]controller.Round{recorded, recorded}, true, nil, true},
		"one cycle isn't":            {[]controller.Round{not, recorded, not}, false, nil, true},
		"it isn't any more":          {[]controller.Round{recorded, not, not}, false, nil, false},
		"a standby without room":     {[]controller.Round{not, not, standby, standby}, false, nil, false},
		"a standby with room":        {[]controller.Round{not, not, standby, standby}, true, nil, true},
		"there is room at once":      {[]controller.Round{not, not, recorded}, true, nil, true},
		"it acts without":            {[]controller.Round{not, not}, false, func(l *loop) { l.options.ActUnrecorded = true }, true},
		"it keeps no record":         {[]controller.Round{not, not}, false, func(l *loop) { l.record = nil }, true},
		"it isn't in an election":    {[]controller.Round{not, not}, false, func(l *loop) { l.part = nil }, true},
		"a standby that never tried": {[]controller.Round{standby, standby}, false, nil, true},
	} {
		folder := filepath.Join(t.TempDir(), "log")
		var log bytes.Buffer
		l := &loop{part: &participation{}, record: &audit.Log{Path: filepath.Join(folder, "audit.jsonl")}, log: zerolog.New(&log), service: &service{begun: time.Now()}}
		l.service.deadline.Store(int64(time.Hour))
		if row.options != nil {
			row.options(l)
		}
		for i := range row.cycles {
			if i == len(row.cycles)-1 && row.room {
				require.NoError(t, os.Mkdir(folder, 0o700))
			}
			l.noteRecord(&row.cycles[i])
		}
		require.Equal(t, row.leads, l.mayLead(), name)
		require.LessOrEqual(t, bytes.Count(log.Bytes(), []byte("can't be written")), 1, name)
	}
}

// The exit code counts hosts, not failures, and is not improved by the end of a run.
func TestExitCodes(t *testing.T) {
	answered := snapshot.Host{Name: "a", Snapshot: &snapshot.Snapshot{}}
	down := snapshot.Host{Name: "b", Err: remote.Errorf(remote.Unreachable, "no route")}
	cut := controller.OrderResult{Host: "b", Err: remote.Errorf(remote.OutcomeUnknown, "cut")}
	cutThere := controller.OrderResult{Host: "a", Err: remote.Errorf(remote.OutcomeUnknown, "cut")}
	fleet := func(hosts ...snapshot.Host) snapshot.Cluster { return snapshot.Cluster{Hosts: hosts} }
	for name, tt := range map[string]struct {
		cycles []controller.Round
		quiet  bool
		want   int
		says   string
	}{
		"all is well":                           {[]controller.Round{{Cluster: fleet(answered)}}, false, 0, ""},
		"one is down":                           {[]controller.Round{{Cluster: fleet(answered, down)}}, false, command.ExitSomeFailed, ""},
		"one is down, and its order was cut":    {[]controller.Round{{Cluster: fleet(answered, down), Stopped: true, Results: []controller.OrderResult{cut}}}, false, command.ExitSomeFailed, "1 of 2 hosts failed"},
		"the only one answered, and was cut":    {[]controller.Round{{Cluster: fleet(answered), Results: []controller.OrderResult{cutThere}}}, false, command.ExitSomeFailed, ""},
		"none answered":                         {[]controller.Round{{Cluster: fleet(down)}}, true, command.ExitNoneLeft, ""},
		"quiet":                                 {[]controller.Round{{Cluster: fleet(answered, down)}}, true, command.ExitSomeFailed, ""},
		"a failure before, and then the end":    {[]controller.Round{{Cluster: fleet(answered, down)}, {Stopped: true, Cluster: fleet(answered), Results: []controller.OrderResult{{Host: "a"}}}}, false, command.ExitSomeFailed, ""},
		"well before, and a failure at the end": {[]controller.Round{{Cluster: fleet(answered)}, {Stopped: true, Cluster: fleet(answered), Results: []controller.OrderResult{cutThere}}}, false, command.ExitSomeFailed, "1 of 1 host failed"},
		"a failure, and then all is well":       {[]controller.Round{{Cluster: fleet(answered, down)}, {Cluster: fleet(answered, answered)}}, false, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			l := &loop{log: zerolog.Nop(), service: &service{}, screen: cycleWriter{out: &out, err: &out, bar: &render.Progress{}}}
			l.options.Progress, l.options.Quiet = l.screen.bar, tt.quiet
			for i := range tt.cycles {
				err := l.show(t.Context(), &tt.cycles[i])
				if tt.cycles[i].Stopped {
					require.ErrorIs(t, err, errStopped, "with and without -q")
				}
			}
			require.Equal(t, tt.want, command.ExitCode(l.last))
			require.Contains(t, out.String(), tt.says)
		})
	}
}
