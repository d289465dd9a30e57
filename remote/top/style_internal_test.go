package top

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/stretchr/testify/require"
)

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

func TestTail(t *testing.T) {
	var said tail
	_, err := said.Write([]byte(strings.Repeat("x", 9000) + "\nPermission denied (publickey).\r\n\r\n"))
	require.NoError(t, err)
	require.Equal(t, "Permission denied (publickey).", said.lastLine())
	require.Empty(t, (&tail{}).lastLine())
}
