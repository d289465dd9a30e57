package config

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What ssh 9.2 passes to a KnownHostsCommand.
func TestSplitArguments(t *testing.T) {
	for text, want := range map[string][]string{
		"":                   nil,
		" \t ":               nil,
		"a b\t c ":           {"a", "b", "c"},
		`"a b"c 'd "e'`:      {"a bc", `d "e`},
		`"" ''`:              {"", ""},
		`a\ b "c\ d" \e \\`:  {"a b", `c\ d`, `\e`, `\`},
		`\" \' "\'" '\"' \`:  {`"`, `'`, `'`, `"`, `\`},
		`$HOME ; | * # 'x'y`: {"$HOME", ";", "|", "*", "#", "xy"},
	} {
		got, ok := splitArguments(text)
		require.True(t, ok, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{`"`, `a 'b`, `"a\"`, `'"`} {
		_, ok := splitArguments(text)
		require.False(t, ok, text)
	}
}

// FuzzSplitArguments: quoted words come out as they went in.
func FuzzSplitArguments(f *testing.F) {
	f.Add("a", `b "`, `\`)
	f.Add("", "\t", "'")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, `'`, `\'`)
		text := `"` + escape.Replace(a) + `" '` + escape.Replace(b) + `' "` + escape.Replace(c) + `"`
		got, ok := splitArguments(text)
		require.True(t, ok)
		require.Equal(t, []string{a, b, c}, got)
		splitArguments(a) // any text
	})
}
