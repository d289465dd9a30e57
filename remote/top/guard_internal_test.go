package top

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
)

// guarded is the sample with a guard that is on, one that can't be, and one that is unknown.
func guarded() *live.Fleet {
	f := sample()
	f.Hosts[0].Guard, f.Hosts[0].Service = live.Guard{Mode: snapshot.GuardEnforce, Policy: snapshot.GuardEnforce}, of(true)
	f.Hosts[1].Guard, f.Hosts[1].Service = live.Guard{Mode: snapshot.GuardUnable, Reason: "kernel: no\x1b[2J BPF", Policy: snapshot.GuardEnforce}, of(false)
	return f
}

func TestGuards(t *testing.T) {
	m := viewed(t, guarded(), 120, 16)
	golden(t, "guards", m)
	m.press("down", "enter")
	require.Contains(t, strings.Join(m.screen(), "\n"), `Kernel guard of gpu-2: unable, although the policy says enforce: kernel: no\x1b[2J BPF`)
	m.press("esc", "/", "guard=unable", "enter")
	require.Len(t, m.rows, 1)
	require.Equal(t, snapshot.Hostname("gpu-2"), m.rows[0].id.host)

	s := newScene(guarded(), nil)
	require.Contains(t, s.sentence(s.hosts["gpu-1"]), "; kernel guard enforce; root owns the state files")
	require.NotContains(t, s.sentence(s.hosts["gpu-3"]), "guard")
}

// TestGuardsThatVanish: the rows may have been sorted by their column.
func TestGuardsThatVanish(t *testing.T) {
	m := viewed(t, guarded(), 120, 16)
	for range 9 {
		m.press("s")
	}
	require.Contains(t, m.screen()[2], "GUARD^")
	m.update(sample())
	require.NotContains(t, m.screen()[2], "GUARD")
	require.Len(t, m.rows, 5)
}

// TestDenials: the history says who was denied what.
func TestDenials(t *testing.T) {
	m := viewed(t, sample(), 120, 16)
	m.update(sample(), live.Event{
		Number: 4, Time: noon, Kind: enforce.EventDenied, Host: "gpu-1", User: "eve", PID: 77,
		Text: "User eve was denied device 1, which is not attached to them: process 77 (python)",
	}, live.Event{Number: 5, Time: noon, Kind: enforce.EventHostBack, Host: "gpu-4", Text: "answers again"})
	m.press("6", "/", "event=denied", "enter")
	screen := strings.Join(m.screen(), "\n")
	require.Len(t, m.rows, 1)
	require.Contains(t, screen, "denied")
	require.Contains(t, screen, "eve")
	require.Contains(t, screen, "User eve was denied device 1")
	m.press("enter")
	require.Contains(t, strings.Join(m.screen(), "\n"), "WHAT: User eve was denied device 1, which is not attached to them: process 77 (python)")
}
