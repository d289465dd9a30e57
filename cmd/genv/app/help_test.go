package app_test

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/app"
)

func TestHelpFitsOnTheTerminal(t *testing.T) {
	page := app.Page{
		Name: "genv sample", Usage: strings.Repeat("usage ", 30), Synopsis: "[options]",
		Description: []string{strings.Repeat("description ", 30) + "\n  laid out already"},
		Options: []app.Option{
			{Names: []string{"--host", "-H"}, Value: "HOSTS", Text: strings.Repeat("option ", 30), Default: "none"},
			{Names: []string{"--a-longer-flag"}, Text: "short"},
		},
		Examples: []app.Entry{{Name: "genv sample " + strings.Repeat("x", 45), Text: strings.Repeat("example ", 10)}},
	}
	for _, width := range []int{80, 100, 200} {
		var b bytes.Buffer
		require.NoError(t, app.WriteHelp(&b, &page, width))
		for line := range strings.Lines(b.String()) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), min(width, 120), "width %d: %s", width, line)
		}
		require.Contains(t, b.String(), "\n     laid out already\n")
		require.Contains(t, b.String(), "\n   --host, -H HOSTS  option option")
		require.Contains(t, b.String(), "\n                     option option")
	}
	t.Run("an example takes its text below it where there is little room", func(t *testing.T) {
		var narrow, wide bytes.Buffer
		require.NoError(t, app.WriteHelp(&narrow, &page, 80))
		require.Contains(t, narrow.String(), "xxx\n          example example")
		require.NoError(t, app.WriteHelp(&wide, &page, 120))
		require.Contains(t, wide.String(), "xxx  example example")
	})
	t.Run("a pipe gets one line each", func(t *testing.T) {
		var b bytes.Buffer
		require.NoError(t, app.WriteHelp(&b, &page, 0))
		require.Contains(t, b.String(), "   --host, -H HOSTS  "+page.Options[0].Text+" (default: none)\n")
	})
}
