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

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"
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
	want, err := os.ReadFile(file)
	require.NoError(t, err)
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
			m := newModel(context.Background(), Options{Source: silent{}, Now: func() time.Time { return noon }, Colour: c.colour})
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
		m.Update(answerMsg{text: strings.Repeat("a long answer ", 9), err: errors.New("refused at last")})
		screen := m.screen()
		require.Contains(t, strings.Join(screen, "\n"), "\n> ", h)
		require.LessOrEqual(t, len(screen), h)
		if h >= 12 {
			require.Contains(t, screen[h-1], "refused at last")
		}
	}
}
