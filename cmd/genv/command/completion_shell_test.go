package command

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLex(t *testing.T) {
	for text, want := range map[string][]string{
		"":                             {""},
		"genv":                         {"genv"},
		"genv ":                        {"genv", ""},
		"genv  remote\t-H a":           {"genv", "remote", "-H", "a"},
		`genv 'a b' "c d" e\ f`:        {"genv", "a b", "c d", "e f"},
		`genv "a\"b\$c\d`:              {"genv", `a"b$c\d`},
		`genv 'a\`:                     {"genv", `a\`},
		`genv a\`:                      {"genv", `a\`},
		"genv a\\\nb":                  {"genv", "ab"},
		`genv ""`:                      {"genv", ""},
		`genv "" `:                     {"genv", "", ""},
		`genv -H="x y"z`:               {"genv", "-H=x yz"},
		"genv $(a b (c)) ${d e} `f g`": {"genv", "$(a b (c))", "${d e}", "`f g`"},
		"genv $(a b":                   {"genv", "$(a b"},
		"genv é'ü":                     {"genv", "éü"},
	} {
		var got []string
		for _, w := range lex(text) {
			got = append(got, w.value)
		}
		require.Equal(t, want, got, text)
	}
}

// TestReplaced: what readline replaces of the last word.
func TestReplaced(t *testing.T) {
	const breaks = " \t\n\"'@><=;|&(:"
	for text, want := range map[string]string{
		"genv ":           "",
		"genv rem":        "rem",
		"genv --format=c": "c",
		"genv --format=":  "",
		"genv -H a:b":     "b",
		"genv -H @tr":     "@tr",
		"genv -H bob@tr":  "@tr",
		"genv -H a,b":     "a,b",
		`genv -H "a:b`:    "a:b",
		`genv -H='a b`:    "a b",
		`genv -H a\:b`:    `a\:b`,
		`genv -H "a=b"c`:  `a=b"c`,
		`genv -H a\ b`:    `a\ b`,
		"genv -H '":       "",
	} {
		words := lex(text)
		require.Equal(t, want, text[words[len(words)-1].replacedFrom(text, breaks):], text)
	}
}

// FuzzQuoted: what is quoted is read as it was, also by bash.
func FuzzQuoted(f *testing.F) {
	for _, seed := range []string{"", "a", "a b", "$(x)", "`x`", "'", `"`, `\`, "~", "é", "!x", "a\"", "*", "{a,b}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		if strings.ContainsAny(value, "\n\x00") || len(value) > 1000 {
			return // never offered
		}
		for _, quote := range []string{"", "'", `"`} {
			open := byte(0)
			if quote != "" {
				open = quote[0]
			}
			written, ok := quoted(value, open)
			if !ok || quote == "" && value == "" {
				continue
			}
			words := lex("genv " + quote + written + quote)
			require.Len(t, words, 2, written)
			require.Equal(t, value, words[1].value, written)
		}
	})
}

func TestQuotedInBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	for c := rune(' '); c < 0x100; c++ {
		value := string(c) + "x" + string(c) + string(c) + "y"
		for _, quote := range []string{"", "'", `"`} {
			open := byte(0)
			if quote != "" {
				open = quote[0]
			}
			written, ok := quoted(value, open)
			require.True(t, ok || strings.ContainsAny(value, `'!`), "%q in %q", value, quote)
			if !ok {
				continue
			}
			out, err := exec.Command(bash, "-c", "printf %s "+quote+written+quote).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, value, string(out), written)
		}
	}
}

// FuzzLex: no line makes it fail, and each word is where it says.
func FuzzLex(f *testing.F) {
	f.Add(`genv -H "a b",c $(x) 'y`, " :=@")
	f.Fuzz(func(t *testing.T, text, breaks string) {
		words := lex(text)
		require.NotEmpty(t, words)
		for _, w := range words {
			require.Len(t, w.positions, len(w.value))
			for i, end := range w.positions {
				require.Equal(t, w.value[i], text[end-1])
			}
		}
		last := &words[len(words)-1]
		from := last.replacedFrom(text, breaks)
		require.True(t, last.start <= from && from <= len(text))
		require.LessOrEqual(t, last.count(from), len(last.value))
	})
}
