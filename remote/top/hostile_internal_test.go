package top

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

// hostileTexts are names that users and hosts may choose.
var hostileTexts = []string{
	"\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "a\r\nb\tc", "\u202egnp.exe", "\x9b31m", "e\u0301\u0302\u0303", "漢字仮名交じり文", "👩‍👩‍👧‍👦👍🏽🇩🇪",
	"\xff\xfe", "<b>&\"'", strings.Repeat("long", 2500), "ᄀᄀ가각", "\u200b\u200d", "عربي", "กำ",
}

// hostile is a fleet in which every text is one of those.
func hostile(s string) *live.Fleet {
	f := sample()
	f.Hosts[0].Name, f.Hosts[0].Labels = snapshot.Hostname(s), map[string]string{s: s}
	for i := range f.Hosts[0].GPUs {
		g := &f.Hosts[0].GPUs[i]
		g.Model, g.UUID = s, snapshot.GPUUUID(s)
		for j := range g.Attached {
			g.Attached[j] = gpus.Attachment{EID: snapshot.EnvID(s), Name: s, User: snapshot.Username(s)}
		}
		for j := range g.Processes {
			p := &g.Processes[j]
			p.User, p.Command, p.Container, p.Image = snapshot.Username(s), s, s, s
		}
	}
	f.Users[0].Name, f.Failed[0] = snapshot.Username(s), remote.Failure{Host: s, Class: remote.Timeout, Error: s, NextStep: s}
	f.Findings[0] = finding("f1", s, s, 4000, "act", s)
	f.Findings[0].Waits, f.Unrecorded = s, s
	return f
}

func TestHostileTexts(t *testing.T) {
	for i, s := range hostileTexts {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			m, _ := acting(t)
			m.painter.Colour = true
			m.options.Source, m.origin = silent{}, ""
			m.update(hostile(s), live.Event{Number: 9, Time: noon, Kind: "new", Host: snapshot.Hostname(s), User: snapshot.Username(s), Text: s})
			for tab := range tabCount {
				for _, keys := range [][]string{{}, {"enter"}, {"t"}, {"e"}, {"d"}, {"/", s}, {"o"}, {"enter", "esc", "space", "enter"}} {
					m.press("esc", "esc", "esc", fmt.Sprint(tab+1), "g")
					m.press(keys...)
					requireHarmless(t, m)
				}
			}
			m.err = fmt.Errorf("%s", s)
			requireHarmless(t, m)
		})
	}
}

// requireHarmless: nothing but text and our own colours reaches the terminal, and each line
// is as wide as both ways to measure say.
func requireHarmless(t *testing.T, m *Model) {
	t.Helper()
	for _, line := range m.frame() {
		bare := ansi.Strip(line)
		require.NotContains(t, strings.ReplaceAll(line, "\x1b[", ""), "\x1b", "only SGR sequences")
		require.False(t, strings.ContainsFunc(bare, func(r rune) bool { return !unicode.IsPrint(r) || unicode.Is(unicode.M, r) }), "%q", bare)
		require.LessOrEqual(t, ansi.StringWidth(line), m.width)
		require.Equal(t, ansi.StringWidth(bare), ansi.StringWidthWc(bare), "%q", bare)
	}
}

// TestWideCharacters: columns stay where they are.
func TestWideCharacters(t *testing.T) {
	f := sample()
	f.Hosts[0].Name, f.Hosts[1].Name = "漢字", "ab"
	m := viewed(t, f, 120, 10)
	lines := m.screen()
	wide, _, _ := strings.Cut(lines[3], "A100")
	narrow, _, _ := strings.Cut(lines[4], "A100")
	require.Equal(t, draw.Width(narrow), draw.Width(wide))
	f.Hosts[0].Name = snapshot.Hostname(strings.Repeat("漢字", 40))
	m.update(f)
	require.Contains(t, m.screen()[3], "漢…")
}

func TestSSHCommand(t *testing.T) {
	for _, host := range []string{"gpu-1", "gpu-1.lab", "10.0.0.1", "fe80::1%eth0", "a_b"} {
		c, err := sshCommand([]string{"-F", "my config"}, host)
		require.NoError(t, err)
		require.Equal(t, []string{"ssh", "-F", "my config", "--", host}, c.Args)
	}
	for _, host := range []string{"", "-oProxyCommand=reboot", "a b", "a;b", "$(reboot)", "a\nb", "u@h", "é", "a'b"} {
		_, err := sshCommand(nil, host)
		require.ErrorContains(t, err, "isn't a name that ssh is called with", host)
	}
}

// TestAFindingForEachProcess of a host that makes up as many as it may.
func TestAFindingForEachProcess(t *testing.T) {
	f := sample()
	g, other := &f.Hosts[0].GPUs[0], &f.Hosts[0].GPUs[1]
	g.Processes, other.Processes = nil, nil
	for i := range 65536 {
		g.Processes = append(g.Processes, gpus.Process{PID: snapshot.PID(i + 1), Start: 1, User: "mallory"})
		f.Findings = append(f.Findings, finding(fmt.Sprint(i), "gpu-1", "mallory", snapshot.PID(i+1), "act", ""))
	}
	other.Processes = g.Processes
	begun := time.Now()
	m := viewed(t, f, 120, 10)
	for _, tab := range []string{"1", "2", "5"} {
		m.press(tab)
		requireHarmless(t, m)
	}
	require.Equal(t, tabProcesses, m.tab)
	require.GreaterOrEqual(t, len(m.rows), 65536)
	require.Len(t, m.rows[0].process.gpus, 2)
	require.Less(t, time.Since(begun), 3*time.Minute, "it took minutes")
}
