package top

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		t.Run(tabNames[tab], func(t *testing.T) {
			m := viewed(t, sample(), 120, 16)
			m.press(fmt.Sprint(tab + 1))
			golden(t, tabNames[tab], m)
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
