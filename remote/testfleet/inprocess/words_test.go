package inprocess_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/testfleet/inprocess"
)

func TestWords(t *testing.T) {
	for line, want := range map[string][]string{
		"genv":                   {"genv"},
		"  genv   usage ":        {"genv", "usage"},
		"a'b'c":                  {"abc"},
		"''":                     {""},
		`'it'\''s'`:              {"it's"},
		`\$HOME`:                 {"$HOME"},
		"'a\nb' --x=1,2 /y:@%+z": {"a\nb", "--x=1,2", "/y:@%+z"},
	} {
		got, err := inprocess.Words(line)
		require.NoError(t, err, line)
		require.Equal(t, want, got, line)
	}
	for _, line := range []string{
		"", " ", "'open", "a;b", "a|b", "a&b", "a>b", "$x", "`x`", "*", "?", "[a]", "~", "#", "(a)", "{a,b}", "!x", "a\nb", "a\tb", `"a"`, `\`, "ä", "a\x00b",
	} {
		_, err := inprocess.Words(line)
		require.ErrorIs(t, err, inprocess.ErrNotPlain, line)
	}
}

func FuzzWordsUndoesQuoting(f *testing.F) {
	for _, seed := range [][2]string{{"genv", "usage"}, {"", "'"}, {"a b", "$(x)"}, {"\n", "\x00\xff"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := inprocess.Words(remote.Command{Args: []string{a, b}}.ShellLine())
		require.NoError(t, err)
		require.Equal(t, []string{a, b}, got)
		if words, err := inprocess.Words(a); err == nil { // what is accepted is stable
			again, err := inprocess.Words(remote.Command{Args: words}.ShellLine())
			require.NoError(t, err)
			require.Equal(t, words, again)
		}
	})
}
