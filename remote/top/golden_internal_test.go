package top

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

var rewrite = flag.Bool("rewrite", false, "write the golden frames again")

// golden compares a screen with a file in testdata, without the spaces at the ends of lines.
func golden(t *testing.T, name string, m *Model) {
	t.Helper()
	var b strings.Builder
	for _, line := range m.screen() {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	file := filepath.Join("testdata", name+".txt")
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o777))
		require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o666))
	}
	want := proctest.ReadFile(t, file)
	require.Equal(t, string(want), b.String())
}

func TestGoldenTabs(t *testing.T) {
	for tab := range tabCount {
		t.Run(tabs[tab].name, func(t *testing.T) {
			m := viewed(t, sample(), 120, 16)
			m.press(fmt.Sprint(tab + 1))
			golden(t, tabs[tab].name, m)
		})
	}
}

// TestPicture: that of the docs has the columns of today; else run make screenshots.
func TestPicture(t *testing.T) {
	var names []string
	for _, c := range gpuColumns() {
		names = append(names, c.Name)
	}
	data := proctest.ReadFile(t, "../../docs/images/columns.txt")
	require.Contains(t, strings.Join(strings.Fields(string(data)), " "), strings.Join(names, " "))
}

func TestGoldenSizes(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {120, 40}, {200, 60}, {40, 10}} {
		name := fmt.Sprintf("hosts-%dx%d", size[0], size[1])
		t.Run(name, func(t *testing.T) { golden(t, name, viewed(t, sample(), size[0], size[1])) })
	}
}

// TestEverySize: no line is wider than the screen, there are no more lines than it has, and
// nothing fails, on each tab and in each mode.
func TestEverySize(t *testing.T) {
	for w := 0; w < 100; w += 7 {
		for h := range 14 {
			for _, keys := range [][]string{{}, {"/", "x"}, {"?"}, {"enter"}, {"G"}, {"6", "enter"}, {"5", "s", "S"}, {"7"}, {"4"}, {"3"}} {
				m := viewed(t, sample(), w, h)
				m.press(keys...)
				lines := m.frame()
				require.LessOrEqual(t, len(lines), h)
				for _, line := range lines {
					require.LessOrEqual(t, ansi.StringWidth(line), w, "%dx%d %v", w, h, keys)
				}
			}
		}
	}
	require.Empty(t, viewed(t, sample(), 0, 0).View().Content)
}

// TestHelpFits: no line of it is broken on a terminal of 80 columns and 24 lines.
func TestHelpFits(t *testing.T) {
	for _, line := range help {
		require.LessOrEqual(t, len(line), 80, line)
	}
	require.LessOrEqual(t, len(help), 21, "with the two lines above it and the one below")
}

// codes are the different styles in which a line is written.
func codes(line string) (list []string) {
	for _, match := range regexp.MustCompile(`\x1b\[([1-9][0-9;]*)m`).FindAllStringSubmatch(line, -1) {
		list = append(list, match[1])
	}
	return list
}

// TestSelectedRowHasOneBackground: colours of cells don't show through as backgrounds.
func TestSelectedRowHasOneBackground(t *testing.T) {
	for _, c := range []struct {
		name      string
		colour    bool
		profile   colorprofile.Profile
		one       string // what each style of the row has
		colourful bool
	}{
		{"many colours", true, colorprofile.TrueColor, "48;5;238", true},
		{"256 colours", true, colorprofile.ANSI256, "48;5;238", true},
		{"16 colours", true, colorprofile.ANSI, "7", false},
		{"no colours", true, colorprofile.Ascii, "7", false},
		{"NO_COLOR", false, colorprofile.TrueColor, "7", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := newModel(context.Background(), Options{Next: silent, Now: func() time.Time { return noon }, Colour: c.colour})
			m.Update(tea.ColorProfileMsg{Profile: c.profile})
			m.Update(tea.WindowSizeMsg{Width: 120, Height: 16})
			m.update(sample())
			row := m.frame()[3]
			require.Contains(t, m.screen()[3], "> gpu-1")
			require.Len(t, strings.TrimRight(m.screen()[3], "\n"), 120, "the bar ends at the edge")
			different := make(map[string]bool)
			for _, code := range codes(row) {
				require.Contains(t, code, c.one)
				require.NotContains(t, code, "7;3")
				different[code] = true
			}
			require.Equal(t, c.colourful, len(different) > 1, row)
			require.Contains(t, codes(m.frame()[2]), "1;4", "the names of columns")
		})
	}
}

// TestALongMessageHidesNoSelectedRow: it takes lines from the rows, at every height.
func TestALongMessageHidesNoSelectedRow(t *testing.T) {
	for h := 4; h < 16; h++ {
		m := viewed(t, sample(), 60, h)
		m.press("2", "G")
		m.Update(m.answer(strings.Repeat("a long answer ", 9), errors.New("refused at last")))
		screen := m.screen()
		require.Contains(t, strings.Join(screen, "\n"), "\n> ", h)
		require.LessOrEqual(t, len(screen), h)
		if h >= 12 {
			require.Contains(t, screen[h-1], "refused at last")
		}
	}
}

// hostileTexts are names that users and hosts may choose.
var hostileTexts = []string{
	"\x1b[2J\x1b[31mred", "\x1b]0;title\x07", "a\r\nb\tc", "\u202egnp.exe", "\x9b31m", "e\u0301\u0302\u0303", "漢字仮名交じり文", "👩‍👩‍👧‍👦👍🏽🇩🇪",
	"\xff\xfe", "<b>&\"'", strings.Repeat("long", 2500), "ᄀᄀ가각", "\u200b\u200d", "عربي", "กำ",
}

// hostile is a fleet in which every text is one of those.
func hostile(s string) *live.FleetState {
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
	f.Findings[0].BlockedBy, f.Unrecorded = s, s
	return f
}

func TestHostileTexts(t *testing.T) {
	for i, s := range hostileTexts {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			m, _ := acting(t)
			m.painter.Colour = true
			m.options.Next, m.origin = silent, ""
			m.options.SSH = func(string) []string { return nil }
			m.update(hostile(s), live.FleetEvent{Number: 9, Time: noon, Kind: "new", Host: snapshot.Hostname(s), User: snapshot.Username(s), Text: s})
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
		c := proctest.Try(sshCommand(func(host string) []string { return []string{"-F", "config of " + host} }, host)).OK(t)
		require.Equal(t, []string{"ssh", "-F", "config of " + host, "--", host}, c.Args)
	}
	for _, host := range []string{"", "-oProxyCommand=reboot", "a b", "a;b", "$(reboot)", "a\nb", "u@h", "é", "a'b"} {
		require.ErrorContains(t, proctest.Try(sshCommand(nil, host)).Err, "isn't a name that ssh is called with", host)
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

// guarded is the sample with a guard that is on, one that can't be, and one that is unknown.
func guarded() *live.FleetState {
	f := sample()
	f.Hosts[0].Guard, f.Hosts[0].Service = live.HostGuard{Mode: snapshot.GuardEnforce, Policy: snapshot.GuardEnforce}, of(true)
	f.Hosts[1].Guard, f.Hosts[1].Service = live.HostGuard{Mode: snapshot.GuardUnable, Reason: "kernel: no\x1b[2J BPF", Policy: snapshot.GuardEnforce}, of(false)
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

	s := newScene(guarded(), nil, nil)
	require.Contains(t, sentence(&tabRow{scene: s, id: rowID{host: "gpu-1"}, host: s.Host("gpu-1")}), "; kernel guard enforce; root owns the state files")
	require.NotContains(t, sentence(&tabRow{scene: s, id: rowID{host: "gpu-3"}, host: s.Host("gpu-3")}), "guard")
}

// TestWhoWaitsAndWhatIsReserved: the lines and columns about that take no room while there is nothing.
func TestWhoWaitsAndWhatIsReserved(t *testing.T) {
	f := sample()
	f.Hosts[0].Waiting = &live.Waiting{Commands: 1, GPUs: 2, Longest: 720, People: []live.WaitingPerson{{User: "er\x1bin", GPUs: 2, Seconds: 720}}}
	f.Hosts[1].Waiting, f.Hosts[1].Reserved = new(live.Waiting), of(1)
	f.Hosts[1].Reservations = []live.Reservation{
		{User: "alice", GPUs: 1, From: noon.Add(-time.Hour), Until: noon.Add(time.Hour), Reason: "paper"}, {User: "bob", GPUs: 1, From: noon.Add(48 * time.Hour), Until: noon.Add(50 * time.Hour)},
	}
	f.Hosts[2].Reservations, f.Hosts[2].Reserved = []live.Reservation{{User: "bob", GPUs: 2, From: noon.Add(3 * time.Hour), Until: noon.Add(50 * time.Hour)}}, of(0)
	m := viewed(t, f, 160, 24)
	screen := strings.Join(m.screen(), "\n")
	for _, want := range []string{"\nReserved: gpu-2: 1 GPU reserved by alice from ", `"paper"; gpu-3: 2 GPUs reserved by bob`, " 2s     2 ", " 0  1 now\n", " ?  2 at 15:00\n"} {
		require.Contains(t, screen, want)
	}
	requireHarmless(t, m)
	m.press("3")
	require.Contains(t, m.screen()[2], `Waiting: er\x1bin for 2 GPUs on gpu-1 since 12m`)
	f = sample()
	f.Hosts[0].Waiting, f.Hosts[0].Reserved = new(live.Waiting), of(0)
	m.update(f)
	require.NotRegexp(t, "Waiting|Reserved|WAIT|RESERVED", strings.Join(m.screen(), "\n"))
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

// TestADeviceWithMIG: its utilization is unknown, which is neither 0 nor idle.
func TestADeviceWithMIG(t *testing.T) {
	list := gpus.Of(&snapshot.Snapshot{
		Devices: []snapshot.Device{{
			UUID: "GPU-0", Name: "H100", TotalMemory: snapshot.MiB(81559), UsedMemory: snapshot.MiB(87), Instances: []snapshot.Instance{{UUID: "MIG-a", Profile: "1g.10gb"}},
		}},
		Processes: []snapshot.Process{{PID: 70, Username: "alice", Instances: []snapshot.GPUUUID{"MIG-a"}, Usage: []snapshot.DeviceUsage{{Index: 0}}}},
	})
	fleet := &live.FleetState{Cycle: 1, Hosts: []live.FleetHost{{Name: "gpu-1", Seen: noon, GPUs: list}}}
	for tab, want := range map[string]string{tabs[tabHosts].name: " ? ", tabs[tabGPUs].name: "A busy", tabs[tabProcesses].name: "A busy"} {
		m := viewed(t, fleet, 120, 16)
		for i := range tabs {
			if tabs[i].name == tab {
				m.press(string(rune('1' + i)))
			}
		}
		shown := strings.Join(m.screen(), "\n")
		require.Contains(t, shown, want, tab)
		require.NotContains(t, shown, "idle ", tab)
		require.NotContains(t, shown, "0%", tab)
		require.Contains(t, shown, "genv top | 1 host | 1 GPU: ")
	}
}

func TestWhoLeads(t *testing.T) {
	m, _ := acting(t)
	for name, row := range map[string]struct {
		election *election.StatusDocument
		want     string
		isnt     string
	}{
		"no election": {nil, "enforcing", "standby"},
		"it leads":    {&election.StatusDocument{Role: election.Leading, Since: noon, Epoch: 12}, "this controller leads since 2026-11-20T12:00:00Z (epoch 12)", "standby"},
		"a standby":   {&election.StatusDocument{Role: election.Standby, Since: noon, Leader: "ann on jump-1", LeaderSince: noon}, `standby; "ann on jump-1" leads since 2026-11-20T12:00:00Z`, "enforcing"},
		"a leader that gets no answer from etcd": {
			&election.StatusDocument{Role: election.Leading, Since: noon, Epoch: 12, Error: "no answer"},
			"etcd doesn't answer: this controller acts until its term ends", "standby",
		},
		"one that may have been replaced": {&election.StatusDocument{Role: election.Expired, Since: noon, Epoch: 12, Error: "no answer"}, "this one only watches until etcd answers", "enforcing"},
	} {
		f := sample()
		f.Election = row.election
		m.update(f)
		require.Contains(t, strings.Join(m.screen(), "\n"), row.want, name)
		require.NotContains(t, m.activity(), row.isnt, name)
	}
}
