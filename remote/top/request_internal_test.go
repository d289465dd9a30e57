package top

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/operator"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

// acting is a Model that may act, and what it asked for.
func acting(t *testing.T) (*Model, *[]operator.Action) {
	m, asked := viewed(t, sample(), 120, 24), new([]operator.Action)
	m.options.Act = func(_ context.Context, a *operator.Action) (operator.Answer, error) {
		*asked = append(*asked, *a)
		return operator.Answer{Text: "done"}, a.Check()
	}
	return m, asked
}

// run runs what a key asked for.
func (m *Model) run(keys ...string) {
	if command := m.press(keys...); command != nil {
		m.Update(command())
	}
}

func action(kind operator.ActionKind, a operator.Action) operator.Action {
	a.Schema, a.Kind, a.Reason = operator.ActionSchema, kind, "why"
	return a
}

func TestRequests(t *testing.T) {
	m, asked := acting(t)
	m.press("h")
	require.Equal(t, typing, m.mode, m.message)
	m.press("enter")
	require.Equal(t, typing, m.mode, "a reason is needed")
	m.press("why", "enter")
	screen := strings.Join(m.screen(), "\n")
	for _, want := range []string{"hold everything that rules do, on all hosts", "reason: why", "Ask for this? y/n"} {
		require.Contains(t, screen, want)
	}
	m.press("x", "enter", "j")
	require.Equal(t, confirm, m.mode)
	m.run("y")
	require.Equal(t, []operator.Action{action(operator.Hold, operator.Action{})}, *asked)
	require.Equal(t, "done", m.message)
}

func TestExemptions(t *testing.T) {
	for name, row := range map[string]struct {
		keys []string
		want operator.Action
	}{
		"a host":                      {[]string{"1"}, operator.Action{Host: "gpu-1"}},
		"a GPU":                       {[]string{"2"}, operator.Action{Host: "gpu-1", Device: new(snapshot.DeviceIndex(0)), UUID: "GPU-0"}},
		"a user":                      {[]string{"3", "j"}, operator.Action{User: "bob"}},
		"a process's user on a host":  {[]string{"5"}, operator.Action{User: "alice", Host: "gpu-1"}},
		"a finding about a process":   {[]string{"4"}, operator.Action{Host: "gpu-2", Rule: enforce.RuleNonEnvProcesses}},
		"a finding about a cap":       {[]string{"4", "j"}, operator.Action{User: "bob", Rule: enforce.RuleMaxDevicesPerUser}},
		"an event's host":             {[]string{"6", "G"}, operator.Action{Host: "gpu-4"}},
		"a host that doesn't answer":  {[]string{"7"}, operator.Action{Host: "gpu-4"}},
		"the event about one process": {[]string{"6"}, operator.Action{User: "dave", Host: "gpu-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, asked := acting(t)
			m.press(append(row.keys, "e", "never", "enter")...)
			require.Equal(t, "write a number of hours, such as 8", m.message)
			m.press("ctrl+u", "9999", "enter")
			require.Contains(t, m.message, "hours: write more than 0")
			m.press("ctrl+u", "8h", "enter", "why", "enter")
			require.Contains(t, strings.Join(m.screen(), "\n"), "for 8 hours")
			m.run("y")
			want := action(operator.Exempt, row.want)
			want.Hours = 8
			require.Equal(t, []operator.Action{want}, *asked)
		})
	}
}

func TestNothingIsAskedFor(t *testing.T) {
	for name, keys := range map[string][]string{
		"a reason is missing":     {"h", "enter", "y"},
		"cancelled with n":        {"h", "why", "enter", "n", "y"},
		"cancelled with Esc":      {"h", "why", "enter", "esc", "y"},
		"cancelled while typing":  {"h", "why", "esc", "y"},
		"y without a request":     {"5", "y"},
		"text that can't be seen": {"h", strings.Repeat("x", 400), "enter", "y"},
	} {
		t.Run(name, func(t *testing.T) {
			m, asked := acting(t)
			last := len(keys) - 1
			m.press(keys[:last]...)
			if m.mode == browse && last > 1 {
				require.NotEmpty(t, m.message)
			}
			m.run(keys[last])
			require.Empty(t, *asked)
		})
	}
}

// TestARequestIsBoundToItsRow: the rows move while it is confirmed.
func TestARequestIsBoundToItsRow(t *testing.T) {
	m, asked := acting(t)
	m.press("5", "e", "8", "enter", "why", "enter")
	f := sample()
	f.Hosts = f.Hosts[1:] // the process and its host are gone
	m.update(f)
	require.Contains(t, strings.Join(m.screen(), "\n"), "exempt user alice on host gpu-1")
	m.run("y")
	require.Equal(t, snapshot.Hostname("gpu-1"), (*asked)[0].Host)
	require.Equal(t, snapshot.Username("alice"), (*asked)[0].User)
}

func TestTaggedRows(t *testing.T) {
	m, asked := acting(t)
	m.press("5", "space", "j", "space", "G", "e", "8", "enter", "why", "enter")
	require.Len(t, m.request, 2)
	require.Contains(t, strings.Join(m.screen(), "\n"), "exempt user bob")
	m.run("y")
	require.Equal(t, []snapshot.Username{"alice", "bob"}, []snapshot.Username{(*asked)[0].User, (*asked)[1].User})
	require.Empty(t, m.tagged, "each is asked for once")

	m.press("g", "space")
	f := sample()
	f.Hosts = f.Hosts[1:]
	m.update(f)
	require.Empty(t, m.tagged)
	m.press("space")
	require.Empty(t, m.tagged, "no row is selected")
	m.press("g", "space", "space")
	require.Len(t, m.tagged, 2)
	m.press("g", "space")
	require.Len(t, m.tagged, 1)
}

// TestASmallWindow: what can't be read as a whole can't be confirmed.
func TestASmallWindow(t *testing.T) {
	m, asked := acting(t)
	m.width, m.height = 30, 7
	m.run("5", "e", "8", "enter", "why", "enter", "y")
	require.Equal(t, confirm, m.mode)
	require.Contains(t, m.message, "the window is too small")
	require.Empty(t, *asked)
	m.width, m.height = 80, 24
	m.run("y")
	require.Len(t, *asked, 1)
}

func TestRefusals(t *testing.T) {
	m, _ := acting(t)
	m.options.Act = func(context.Context, *operator.Action) (operator.Answer, error) {
		return operator.Answer{}, operator.Refuse(operator.Changed, "Look again.", "there is\x1b[2J no exemption")
	}
	m.run("5", "e", "8", "enter", "why", "enter", "y")
	require.Contains(t, m.message, `refused: exempt user alice on host gpu-1`)
	require.Contains(t, m.message, `there is\x1b[2J no exemption`)
	m.Update(m.answer("", errors.New("exit status 255")))
	require.Equal(t, "exit status 255", m.message)
}

func TestReadOnly(t *testing.T) {
	m := viewed(t, sample(), 120, 24)
	m.options.NoAct = "this view is read-only: start it with --allow-actions"
	for _, key := range []string{"e", "h"} {
		m.press("5", key)
		require.Equal(t, browse, m.mode)
		require.Equal(t, m.options.NoAct, m.message)
	}
}

func TestHoldAndRelease(t *testing.T) {
	m, asked := acting(t)
	f := sample()
	f.Hold = &operator.OnHold{Since: noon, By: "root (uid 0)", Reason: "maintenance"}
	m.update(f)
	require.Contains(t, strings.Join(m.screen(), "\n"), "enforcement is on hold since")
	m.press("h")
	require.Contains(t, strings.Join(m.screen(), "\n"), "release everything that rules do, on all hosts")
	m.run("y")
	require.Equal(t, []operator.Action{{Schema: operator.ActionSchema, Kind: operator.Release}}, *asked)
}

// shuffled is a fleet of the same kind with other hosts, GPUs and processes, in another order.
func shuffled(r *rand.Rand) *live.FleetState {
	f := sample()
	for i := range r.IntN(6) {
		f.Hosts = append(f.Hosts, live.FleetHost{Name: snapshot.Hostname(fmt.Sprintf("more-%d", i)), Seen: noon, GPUs: []gpus.GPU{gpu(0, gpus.Busy, "erin"), gpu(1, gpus.Free)}})
		f.Users = append(f.Users, live.FleetUser{Name: snapshot.Username(fmt.Sprintf("user-%d", i)), Attached: r.IntN(9)})
		f.Findings = append(f.Findings, finding(fmt.Sprintf("more-%d", i), "gpu-1", "erin", snapshot.PID(r.IntN(5000)), "act", "something"))
	}
	drop(r, &f.Hosts)
	drop(r, &f.Users)
	drop(r, &f.Findings)
	drop(r, &f.Failed)
	for i := range f.Hosts {
		for j := range f.Hosts[i].GPUs {
			drop(r, &f.Hosts[i].GPUs[j].Processes)
		}
	}
	return f
}

// drop shuffles a list and drops some of it.
func drop[T any](r *rand.Rand, list *[]T) {
	r.Shuffle(len(*list), func(i, j int) { (*list)[i], (*list)[j] = (*list)[j], (*list)[i] })
	*list = (*list)[:r.IntN(len(*list)+1)]
}

// TestTheSelectionStays: whatever updates bring, the selected row is the one that was
// selected by the last key; while it is gone, no row is.
func TestTheSelectionStays(t *testing.T) {
	r := rand.New(rand.NewPCG(12, 1))
	for range 25 {
		m := viewed(t, sample(), 100, 8+r.IntN(20))
		m.press(fmt.Sprint(1+r.IntN(7)), strings.Repeat("s", r.IntN(2)))
		for range 40 {
			if r.IntN(3) == 0 {
				m.press([]string{"j", "k", "g", "G", "pgdown", "pgup", "s", "S"}[r.IntN(8)])
			}
			before, chosen := m.cursor().id, m.cursor().chosen
			m.update(shuffled(r))
			if !chosen {
				continue
			}
			require.Equal(t, before, m.cursor().id)
			there := slices.ContainsFunc(m.rows, func(r tabRow) bool { return r.id == before })
			if !there {
				require.Nil(t, m.selected())
				require.NotContains(t, strings.Join(m.screen(), "\n"), "\n>", "no row is marked")
				continue
			}
			require.Equal(t, before, m.selected().id)
			lines := slices.DeleteFunc(m.screen(), func(line string) bool { return !strings.HasPrefix(line, ">") })
			require.Len(t, lines, 1, "the selected row is visible")
			require.Contains(t, lines[0], strings.Fields(m.line(m.selected()))[0])
		}
	}
}

func TestARowThatIsGone(t *testing.T) {
	m, asked := acting(t)
	m.press("5", "j", "j")
	require.Equal(t, snapshot.PID(4020), m.selected().id.pid)
	f := sample()
	f.Hosts[0].GPUs[2].Processes = nil
	m.update(f)
	require.Nil(t, m.selected())
	for _, key := range []string{"e", "enter", "o", "space"} {
		m.press(key)
		require.Equal(t, browse, m.mode, key)
		require.Equal(t, "process 4020 on gpu-1 isn't here any more: move to select another row", m.message)
	}
	m.press("j")
	require.Equal(t, rowID{tab: tabProcesses, host: "gpu-2", pid: 4000, start: 880123}, m.selected().id, "the row that followed it")
	require.Empty(t, *asked)

	m.update(sample())
	m.press("k")
	require.Equal(t, snapshot.PID(4020), m.selected().id.pid)
	f.Hosts[0].GPUs[2].Processes = sample().Hosts[0].GPUs[2].Processes
	f.Hosts[0].GPUs[2].Processes[0].Start++ // the PID was given to another process
	m.update(f)
	require.Nil(t, m.selected())
	m.update(sample())
	require.Equal(t, snapshot.PID(4020), m.selected().id.pid, "it is the same one again")
}

func TestTheLastRowGoes(t *testing.T) {
	m, _ := acting(t)
	m.press("4")
	f := sample()
	f.Findings = nil
	m.update(f)
	require.Nil(t, m.selected())
	m.update(sample())
	f = sample()
	f.Findings = f.Findings[1:]
	m.update(f)
	require.Nil(t, m.selected(), "the other finding isn't selected instead")
	m.press("t")
	require.Equal(t, browse, m.mode)
	m.press("k")
	require.Equal(t, "f2", m.selected().id.finding)
}
