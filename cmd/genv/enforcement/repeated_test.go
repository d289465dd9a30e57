package enforcement

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/command"
	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/enforce/guard"
	"github.com/seed-3119e985/genv/enforce/order"
	"github.com/seed-3119e985/genv/enforce/policy"
	"github.com/seed-3119e985/genv/enforce/safety"
	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/agent"
	"github.com/seed-3119e985/genv/remote/controller"
	"github.com/seed-3119e985/genv/snapshot"
)

// screen is a cycleWriter over cycles of a minute.
type screen struct {
	t        *testing.T
	out, err bytes.Buffer
	cycleWriter
	number int
}

func newScreen(t *testing.T, dated bool) *screen {
	s := &screen{t: t}
	s.cycleWriter = cycleWriter{out: &s.out, err: &s.err, dated: dated, bar: &render.Progress{}}
	return s
}

// cycle shows a cycle with some events, and returns what it printed on each stream.
func (s *screen) cycle(round controller.Round, events ...enforce.Event) (out, err string) {
	s.number++
	round.Number, round.Start = s.number, time.Unix(1_800_000_000, 0).Add(time.Duration(s.number)*time.Minute)
	s.out.Reset()
	s.err.Reset()
	s.Consume(&round, events)
	require.NoError(s.t, s.write(&round, nil))
	return s.out.String(), s.err.String()
}

// outside is a finding about a process, and an event about it.
func outside(pid snapshot.PID, kind enforce.EventKind, decision enforce.Decision) enforce.Event {
	f := enforce.Finding{ID: fmt.Sprint("p/", pid), Rule: enforce.RuleNonEnvProcesses, Host: "a", PID: pid, User: "bob", Since: time.Unix(1_800_000_000, 0)}
	switch decision {
	case enforce.DecisionAct:
		f.Terminate = []enforce.ProcessRef{{Host: "a", PID: pid}}
	case enforce.DecisionStuck:
		f.Stuck = []enforce.StuckProcess{{ProcessRef: enforce.ProcessRef{Host: "a", PID: pid}, Reason: "it hangs"}}
	case enforce.DecisionWait:
		f.Pending, f.Due = true, f.Since.Add(time.Hour)
	}
	return enforce.Event{Kind: kind, Host: f.Host, ID: f.ID, Finding: &f, Decision: decision}
}

func terminating(pid snapshot.PID, status order.OutcomeStatus) enforce.Event {
	return enforce.Event{
		Kind: enforce.EventOutcome, Host: "a", Lines: []string{fmt.Sprintf("Terminating process %d", pid)},
		Outcomes: []order.Outcome{{PID: pid, Status: status, Reason: "SIGTERM did not end it"}},
	}
}

// TestAProcessThatStays: what is done about it again and again is printed each time in a
// pipe, and now and then on a terminal; the finding, and what is decided, once.
func TestAProcessThatStays(t *testing.T) {
	const line, acts = "[a] Process 7 is not running in a GPU environment (user bob)", "[a] Terminating process 7"
	for _, dated := range []bool{false, true} {
		s := newScreen(t, dated)
		out, err := s.cycle(controller.Round{}, outside(7, enforce.EventNew, enforce.DecisionWait))
		require.Equal(t, line+" (waits for 59m)\n", out)
		require.Empty(t, err)
		out, err = s.cycle(controller.Round{}, outside(7, enforce.EventChanged, enforce.DecisionAct), outside(7, enforce.EventDue, enforce.DecisionAct), terminating(7, order.StatusSurvived))
		require.Equal(t, line+"\n"+acts+"\n", out)
		require.Equal(t, "[a] process 7: survived: SIGTERM did not end it\n", err)
		out, err = s.cycle(controller.Round{}, outside(7, enforce.EventChanged, enforce.DecisionStuck))
		require.Equal(t, line+" (process 7: it hangs)\n", out)
		require.Empty(t, err)

		var outs, errs strings.Builder
		for range 130 { // more than two hours
			out, err = s.cycle(controller.Round{}, outside(7, enforce.EventChanged, enforce.DecisionAct), outside(7, enforce.EventDue, enforce.DecisionAct), terminating(7, order.StatusSurvived))
			outs.WriteString(out)
			errs.WriteString(err)
			out, err = s.cycle(controller.Round{}, outside(7, enforce.EventChanged, enforce.DecisionStuck))
			outs.WriteString(out)
			errs.WriteString(err)
		}
		want := strings.Repeat(acts+"\n", 130)
		if dated {
			want = acts + " (31 times within 1h)\n" + acts + " (91 times within 3h)\n"
		}
		require.Equal(t, want, outs.String())
		require.Equal(t, 2, strings.Count(errs.String(), "\n"), errs.String())

		out, err = s.cycle(controller.Round{}, enforce.Event{Kind: enforce.EventOver, Host: "a", ID: "p/7"})
		require.Empty(t, out)
		require.Equal(t, "[a] Resolved after 4h24m: Process 7 is not running in a GPU environment\n", err)
		require.Empty(t, s.findings, "nothing is remembered")
	}
}

// TestWhatIsOver: only what was printed is said to be over, and in front of a pipe nothing of it is on stdout.
func TestWhatIsOver(t *testing.T) {
	s := newScreen(t, false)
	s.cycle(controller.Round{}, outside(7, enforce.EventNew, enforce.DecisionUnderWay))
	out, err := s.cycle(controller.Round{}, enforce.Event{Kind: enforce.EventOver, ID: "p/7"}, enforce.Event{Kind: enforce.EventOver, ID: "unknown"})
	require.Empty(t, out+err, "it ended because of an earlier order")

	var begun, over []enforce.Event
	for pid := range snapshot.PID(20) {
		begun = append(begun, outside(pid, enforce.EventNew, enforce.DecisionWait))
		over = append(over, enforce.Event{Kind: enforce.EventOver, Host: "a", ID: fmt.Sprint("p/", pid)})
	}
	out, _ = s.cycle(controller.Round{}, begun...)
	require.Equal(t, 20, strings.Count(out, "\n"))
	out, err = s.cycle(controller.Round{}, over...)
	require.Empty(t, out)
	require.Equal(t, 20, strings.Count(err, "[a] Resolved after "))

	s.quiet = true
	_, _ = s.cycle(controller.Round{}, begun...)
	_, err = s.cycle(controller.Round{}, over...)
	require.Empty(t, err, "-q")
}

// TestHeld: what a safety limit holds back is said when it begins and ends, also with -q.
func TestHeld(t *testing.T) {
	s := newScreen(t, false)
	s.quiet = true
	held := safety.Held{User: "bob", Because: "in all 3", Terminations: 3}
	event := enforce.Event{Kind: enforce.EventHeld, Held: &held, Text: held.String()}
	round := controller.Round{Plan: enforce.Plan{HeldUsers: []safety.Held{held}}}
	_, err := s.cycle(round, event)
	require.Contains(t, err, "Safety limit exceeded: in all 3. No action taken against user bob")
	require.Contains(t, err, "raise `limits:` in the policy.\n")
	said := 0
	for range 130 {
		_, err = s.cycle(round, event)
		said += strings.Count(err, "\n")
	}
	require.Equal(t, 1, said, "after an hour, and after three")
	_, err = s.cycle(controller.Round{Stopped: true})
	require.Empty(t, err, "it was not judged")
	_, err = s.cycle(controller.Round{})
	require.Equal(t, "No safety limit keeps actions back any more against user bob, after 2h12m.\n", err)
	_, err = s.cycle(round, event)
	require.Contains(t, err, "Safety limit exceeded", "it begins again")
}

// TestFailedOrders: each is named, those that fail alike together, and not in every cycle.
func TestFailedOrders(t *testing.T) {
	s := newScreen(t, false)
	var events []enforce.Event
	for n := range 12 {
		events = append(events, enforce.Event{Kind: enforce.EventOutcome, Host: snapshot.Hostname(fmt.Sprintf("gpu-%02d", n)), Err: remote.Errorf(remote.SudoRefused, "sudo refused it"), Lines: nil})
	}
	_, err := s.cycle(controller.Round{}, events...)
	require.Regexp(t, `^Order failed: gpu-\[00-11\]: sudo refused it \(12 hosts\)\nnext: in /etc/sudoers.d/zz-genv`, err)
	_, err = s.cycle(controller.Round{}, events...)
	require.Empty(t, err)
}

// TestDryRunUnderWarn: what waits for its time is said as well, with the time, and once.
func TestDryRunUnderWarn(t *testing.T) {
	s := newScreen(t, false)
	uid := snapshot.UID(1001)
	seen := &snapshot.Snapshot{
		Processes:    []snapshot.Process{{PID: 7, UID: &uid, Usage: []snapshot.DeviceUsage{{Index: 3}}}, {PID: 8, Usage: []snapshot.DeviceUsage{{Index: 3}}}},
		Environments: []snapshot.Environment{{EID: "17", UID: uid, Username: "bob"}},
	}
	wait := outside(7, enforce.EventNew, enforce.DecisionWait).Finding
	wait.Terminate = []enforce.ProcessRef{{Host: "a", PID: 7}, {Host: "a", PID: 99}}
	wait.Due = time.Unix(1_800_000_000, 0).Add(11 * time.Minute)
	capped := enforce.Finding{
		ID: "c", Rule: enforce.RuleMaxDevicesPerUser, User: "bob", Count: &enforce.CountExcess{Used: 3, Limit: 2, Hosts: 2}, Pending: true,
		Detach: []enforce.DeviceRef{{Host: "a", Index: 3, EID: "17"}},
	}
	limited := outside(8, enforce.EventNew, enforce.DecisionWait).Finding
	limited.BlockedBy, limited.Terminate = "hosts are missing", []enforce.ProcessRef{{Host: "a", PID: 8}}
	round := controller.Round{
		DryRun: true, Cluster: snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: seen}}},
		Plan: enforce.Plan{Findings: []enforce.Finding{*wait, capped, *limited}},
	}
	out, _ := s.cycle(round)
	require.Equal(t, "[a] Would terminate process 7 from environment N/A that is running on GPU(s) 3 in 10m, if it lasts, because: Process 7 is not running in a GPU environment (user bob)\n"+
		"[a] Would detach environment 17 of user bob from device 3 after more cycles, if it lasts, because: User bob is using 3 devices on 2 hosts which is 1 more than the maximum allowed\n", out)
	out, _ = s.cycle(round)
	require.Empty(t, out, "once")

	due := round
	wait.Pending = false
	due.Plan = enforce.Plan{Findings: []enforce.Finding{*wait}, Orders: []order.OfHost{{Host: "a", Order: order.Order{Terminate: []order.Termination{{Process: seen.Processes[0]}}}}}}
	out, _ = s.cycle(due)
	require.Equal(t, "[a] Would terminate process 7 from environment N/A that is running on GPU(s) 3\n", out)
	for range 3 {
		out, _ = s.cycle(due)
		require.Empty(t, out)
	}
	s.cycle(controller.Round{DryRun: true})
	out, _ = s.cycle(due)
	require.NotEmpty(t, out, "it begins again")
}

// guardedDay is a fleet of hosts with guards.
type guardedDay struct {
	*day
	modes []guard.Mode // of the requests
}

func (*guardedDay) About(remote.Host) agent.About {
	return agent.About{Via: agent.ViaStream, Capabilities: []string{agent.RequestGuard}}
}

func (d *guardedDay) Guard(_ context.Context, _ remote.Host, r agent.GuardRequest) (agent.GuardAnswer, error) {
	d.modes = append(d.modes, r.Order.Mode)
	return agent.GuardAnswer{State: agent.GuardState{Mode: r.Order.Mode}}, nil
}

// TestGuardWithSummary: a summary measures what hosts are asked, and hides no guard.
func TestGuardWithSummary(t *testing.T) {
	for _, period := range []time.Duration{0, time.Hour} {
		t.Run(period.String(), func(t *testing.T) {
			var screen bytes.Buffer
			p := &command.Program{Out: &screen, Err: &screen, Getenv: func(string) string { return "" }, Now: time.Now}
			file, err := policy.Parse("policy.yaml", []byte("defaults: {guard: enforce}"))
			require.NoError(t, err)
			d := &guardedDay{day: openDay(t)}
			options := Options{
				Policy: file, Format: "tui", ActUnrecorded: true, Summary: period,
				Hosts: []remote.Host{{Name: dayName(1)}}, Link: d, Fanout: 1, CycleLimit: time.Minute, Progress: &render.Progress{},
			}
			require.NoError(t, Run(t.Context(), p, zerolog.Nop(), options, nil))
			require.Equal(t, []guard.Mode{guard.Enforce}, d.modes)
			require.Contains(t, screen.String(), "the kernel guard is enforcing")
		})
	}
}

func TestColours(t *testing.T) {
	for line, colour := range map[string]string{
		"Lost: a": "31", "Would terminate process 7": "33", "Back after 3m: a": "32", "Summary of 1h: ": "",
		"Resolved after 1s: x": "32", "[a] Resolved after 1s: x": "32",
	} {
		want := line
		if colour != "" {
			want = "\x1b[" + colour + "m" + line + "\x1b[0m"
		}
		require.Equal(t, want, coloured(line, line, true))
	}
}
