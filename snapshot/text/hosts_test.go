package text_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/text"
)

func TestExpand(t *testing.T) {
	tests := []struct{ pattern, want string }{
		{"gpu1", "gpu1"},
		{"GPU-1.Lab.", "GPU-1.Lab."},
		{"g[1-3]", "g1 g2 g3"},
		{"g[01-03].lab", "g01.lab g02.lab g03.lab"},
		{"g[8-11]", "g8 g9 g10 g11"},
		{"g[08-11]", "g08 g09 g10 g11"},
		{"g[98-101]", "g98 g99 g100 g101"},
		{"g[1,3,5-7]", "g1 g3 g5 g6 g7"},
		{"g[ 1 , 3 ]", "g1 g3"},
		{"g[007]", "g007"},
		{"g[0]", "g0"},
		{"[1-2]g", "1g 2g"},
		{"r[1-2]-[a]", ""},
		{"r[1-2]g[01-02]x", "r1g01x r1g02x r2g01x r2g02x"},
		{"[1-2][3-4]", "13 14 23 24"},
		{"10.0.0.[1-2]", "10.0.0.1 10.0.0.2"},
		{"::1", "::1"},
		{"fe80::1%eth0", "fe80::1%eth0"},
		{"10.0.0.1", "10.0.0.1"},
	}
	for _, test := range tests {
		t.Run(test.pattern, func(t *testing.T) {
			p, err := text.ParseHosts(test.pattern)
			if test.want == "" {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, strings.Join(p.Expand(), " "))
			require.Equal(t, len(p.Expand()), p.Count())
			require.Equal(t, test.pattern, p.String())
		})
	}
}

func TestParseErrorsSayWhatToWrite(t *testing.T) {
	long := strings.Repeat("a", 254)
	tests := []struct{ pattern, want string }{
		{"", "the host name is empty; write one"},
		{"g[3-1]", `"g[3-1]": the range 3-1 is reversed; write 1-3`},
		{"g[1-3", `"g[1-3": a bracket is not closed; write it as gpu[1-4]`},
		{"g1]", `"g1]": a closing bracket without an opening one; write it as gpu[1-4]`},
		{"g[]", `"g[]": "" is not a range of numbers; write it as [01-16] or [1,3,5-8]`},
		{"g[1,]", `"g[1,]": "" is not a range of numbers; write it as [01-16] or [1,3,5-8]`},
		{"g[a-c]", `"g[a-c]": "a-c" is not a range of numbers; write it as [01-16] or [1,3,5-8]`},
		{"g[1-2-3]", `"g[1-2-3]": "1-2-3" is not a range of numbers; write it as [01-16] or [1,3,5-8]`},
		{"g[-3]", `"g[-3]": "-3" is not a range of numbers; write it as [01-16] or [1,3,5-8]`},
		{"g[[1]]", `"g[[1]]": "[1" is not a range of numbers; write it as [01-16] or [1,3,5-8]`},
		{"g[1234567890]", `"g[1234567890]": "1234567890" is not a range of numbers; write it as [01-16] or [1,3,5-8]`},
		{"g[1-016]", `"g[1-016]": the numbers of 1-016 are padded to different widths; write both with the same number of digits`},
		{"g[001-16]", `"g[001-16]": the numbers of 001-16 are padded to different widths; write both with the same number of digits`},
		{"a[1-999999999]", `"a[1-999999999]" matches more than 100000 hosts; write a smaller range`},
		{"a[1-1000]b[1-1000]", `"a[1-1000]b[1-1000]" matches more than 100000 hosts; write a smaller range`},
		{"-x", `"-x": a host name must begin with a letter or a digit`},
		{".x", `".x": a host name must begin with a letter or a digit`},
		{"a b", `"a b": ' ' is not allowed in a host name; use letters, digits, '-', '_' and '.'`},
		{"a;b", `"a;b": ';' is not allowed in a host name; use letters, digits, '-', '_' and '.'`},
		{"gpü", `"gpü": 'ü' is not allowed in a host name; use letters, digits, '-', '_' and '.'`},
		{"a\x1b[1m", `"a\x1b[1m": '\x1b' is not allowed in a host name; use letters, digits, '-', '_' and '.'`},
		{"fe80::1%$(id)", `'$' is not allowed in a host name; use letters, digits, '-', '_' and '.'`},
		{long, `"aaaaaaaaaaaaaaaaaaaa"…: a host name has at most 253 characters`},
	}
	for _, test := range tests {
		t.Run(test.pattern, func(t *testing.T) {
			p, err := text.ParseHosts(test.pattern)
			require.EqualError(t, err, test.want)
			require.Empty(t, p.Expand())
			require.False(t, p.Matches(test.pattern))
		})
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, name string
		want          bool
	}{
		{"gpu", "GPU", true},
		{"Gpu", "gpu.", true},
		{"gpu.", "GPU", true},
		{"gpu", "gpu1", false},
		{"gpu[1-3]", "gpu2", true},
		{"gpu[1-3]", "gpu4", false},
		{"gpu[1-3]", "gpu02", false},
		{"gpu[01-03]", "gpu2", false},
		{"gpu[01-03]", "GPU02", true},
		{"gpu[8-11]", "gpu10", true},
		{"gpu[8-11]", "gpu08", false},
		{"gpu[1-3]", "gpu", false},
		{"gpu[1-3]", "gpu2.lab", false},
		{"g[1-20]x[1]", "g12x1", true},
		{"[1-20][1-20]", "1111", true},
		{"[1-2][3]", "13", true},
		{"[1-2][3]", "1", false},
	} {
		p, err := text.ParseHosts(test.pattern)
		require.NoError(t, err)
		require.Equal(t, test.want, p.Matches(test.name), "%s against %s", test.pattern, test.name)
	}
}

func TestSplit(t *testing.T) {
	for _, test := range []struct {
		list string
		want []string
	}{
		{"a", []string{"a"}},
		{"a,b", []string{"a", "b"}},
		{" a , b ", []string{"a", "b"}},
		{"g[1,3],h", []string{"g[1,3]", "h"}},
		{"g[1,3", []string{"g[1,3"}},
		{"g],h", []string{"g]", "h"}},
		{"[::1]:22,b", []string{"[::1]:22", "b"}},
		{"a,,b", []string{"a", "", "b"}},
		{"", []string{""}},
	} {
		require.Equal(t, test.want, text.SplitHosts(test.list), test.list)
	}
}

// FuzzParseHosts: a pattern has a bounded number of names. It matches each of them, and
// each is a pattern with just this name.
func FuzzParseHosts(f *testing.F) {
	for _, seed := range []string{"gpu[01-16].lab", "a[1,3,5-8]b[1-2]", "::1", "fe80::1%eth0", "a[1-999999999]", "g[3-1]", "[1][1]", "-a", "[[", "]", "Ax."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		p, err := text.ParseHosts(word)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		names := p.Expand()
		require.LessOrEqual(t, len(names), text.MaxHosts)
		require.Len(t, names, p.Count())
		for _, name := range names[:min(len(names), 50)] {
			literal, err := text.ParseHosts(name)
			require.NoError(t, err)
			require.Equal(t, []string{name}, literal.Expand())
			require.True(t, p.Matches(strings.ToUpper(name)), name)
		}
	})
}

func TestMatchGlob(t *testing.T) {
	for _, tt := range []struct {
		glob, text    string
		bytes, letter bool // whether it matches byte by byte, and letter by letter
	}{
		{"", "", true, true},
		{"", "a", false, false},
		{"*", "", true, true},
		{"a*b*", "aXbYb", true, true},
		{"a*b", "aXbY", false, false},
		{"a?c", "abc", true, true},
		{"a?", "a", false, false},
		{"m?nchen", "münchen", false, true},
		{"m??nchen", "münchen", true, false},
		{"A", "a", false, false},
	} {
		require.Equal(t, tt.bytes, text.MatchGlob([]byte(tt.glob), []byte(tt.text)), "%q of %q", tt.glob, tt.text)
		require.Equal(t, tt.letter, text.MatchGlob([]rune(tt.glob), []rune(tt.text)), "%q of %q", tt.glob, tt.text)
	}
}

func TestHostGlobs(t *testing.T) {
	for _, test := range []struct {
		glob, name string
		want       bool
	}{
		{"*", "gpu-01", true},
		{"gpu-*", "gpu-01", true},
		{"GPU-*", "gpu-01.", true},
		{"gpu-*.", "GPU-01", true},
		{"gpu-*", "gpu-", true},
		{"gpu-0?", "gpu-07", true},
		{"*.lab", "a.b.lab", true},
		{"*a*a*b", "aaaab", true},
		{"rack[1-2]-*", "rack2-gpu", true},
		{"rack[01-12]*[3-4]", "rack0713", true},
		{"?[1-3]", "32", true},
		{"gpu-*", "gpu", false},
		{"gpu-*", "xgpu-1", false},
		{"gpu-0?", "gpu-0", false},
		{"gpu-0?", "gpu-012", false},
		{"rack[1-2]-*", "rack3-gpu", false},
		{"rack[01-12]*", "rack1", false},
		{"*[1-3]", "gpu4", false},
		{"?", "", false},
		{"*b", "aaaa", false},
	} {
		matches, err := text.ParseHostGlob(test.glob)
		require.NoError(t, err)
		require.Equal(t, test.want, matches(test.name), "%s against %s", test.glob, test.name)
	}
	for glob, want := range map[string]string{
		"gpu[*]":                   `"gpu[*]": "*" is not a range of numbers; write it as [01-16] or [1,3,5-8]`,
		"gpu[1-*":                  `"gpu[1-*": a bracket is not closed; write it as gpu[1-4]`,
		"gpu]*":                    `"gpu]*": a closing bracket without an opening one; write it as gpu[1-4]`,
		"gpu[a-c]*":                `"gpu[a-c]*": "a-c" is not a range of numbers; write it as [01-16] or [1,3,5-8]`,
		"-*":                       `"-*": a host name must begin with a letter or a digit`,
		"a;*":                      `"a;*": ';' is not allowed in a host name; use letters, digits, '-', '_' and '.'`,
		strings.Repeat("*a", 1000): `"*a*a*a*a*a*a*a*a*a*a"…: a host name has at most 253 characters`,
	} {
		_, err := text.ParseHostGlob(glob)
		require.EqualError(t, err, want)
	}
}

// FuzzParseHostGlob: a glob without wildcards matches what the same HostPattern matches, and
// a star around it matches that too.
func FuzzParseHostGlob(f *testing.F) {
	for _, seed := range []string{"gpu[01-16].lab", "a[1,3,5-8]b[1-2]", "*", "?a*", "rack[1-2]-*", "*[1-2]*[3-4]?", "[", "*]", "-*", "Ax.", "..", "*."} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, word string) {
		matches, err := text.ParseHostGlob(word)
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			return
		}
		plain := strings.NewReplacer("*", "xyz", "?", "9").Replace(word)
		p, err := text.ParseHosts(plain)
		if err != nil {
			return
		}
		around, err := text.ParseHostGlob("*" + word + "*")
		require.Equal(t, len(word)+2 > 253, err != nil)
		names := p.Expand()
		for _, name := range names[:min(len(names), 20)] {
			require.True(t, matches(strings.ToUpper(name)), "%q against %q", word, name)
			require.True(t, err != nil || strings.HasSuffix(word, ".") || around("a"+name+"b"), "%q around %q", word, name)
		}
	})
}

func TestShown(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"a PID as an id", "20015", "20015"},
		{"a user", "alice", "alice"},
		{"all ordinary marks", "A.b_c:d@e/f+g-1", "A.b_c:d@e/f+g-1"},
		{"as long as it may be", strings.Repeat("x", 32), strings.Repeat("x", 32)},
		{"one more", strings.Repeat("x", 33), `"` + strings.Repeat("x", 31) + `…"`},
		{"long, in letters of several bytes", strings.Repeat("é", 40), `"` + strings.Repeat("é", 31) + `…"`},
		{"nothing", "", `""`},
		{"the mark for no environment", "N/A", `"N/A"`},
		{"a space", "my project", `"my project"`},
		{"words of persuasion", "1 - run: curl x|sh", `"1 - run: curl x|sh"`},
		{"an end of the quotes", `1" is full. Run: curl x|sh "`, `"1' is full. Run: curl x|sh '"`},
		{"other quotation marks", "1” now “run «x» ＂y＂ ‟z″", `"1' now 'run 'x' 'y' 'z'"`},
		{"an escape sequence", "a\x1b[2Jb", `"a?[2Jb"`},
		{"lines", "a\nb\r\tc", `"a?b??c"`},
		{"not UTF-8", "a\xffb", `"a?b"`},
		{"an order of its own", "a\u202eb\u2066c\u200d\ufeff", `"a?b?c??"`},
		{"a space that is none", "a\u00a0b\u3000c\u2028", `"a?b?c?"`},
		{"marks over the letters", "a\u0301\u0301", `"a??"`},
		{"another alphabet", "プロジェクト", `"プロジェクト"`},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, text.Shown(tt.text)) })
	}
}

func TestQuoted(t *testing.T) {
	require.Equal(t, `"alice"`, text.Quoted("alice", 5))
	require.Equal(t, `"ali…"`, text.Quoted("alice", 4))
	require.Equal(t, `"it's ? 'x'"`, text.Quoted("it's \a \"x\"", 100))
}

// FuzzShown: whatever the text, it is one word of safe characters, or stays
// inside of one pair of quotes, on one line, in 32 characters.
func FuzzShown(f *testing.F) {
	for _, seed := range []string{"", "1", `a"b`, "\x1b[2J", "\xff\xfe", strings.Repeat("é", 100), "N/A", "“"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		shown := text.Shown(s)
		require.True(t, utf8.ValidString(shown))
		if !strings.HasPrefix(shown, `"`) {
			require.Equal(t, s, shown)
			require.Regexp(t, `^[A-Za-z0-9._:@/+-]{1,32}$`, shown)
			return
		}
		inside := shown[1 : len(shown)-1]
		require.True(t, strings.HasSuffix(shown, `"`))
		require.NotContains(t, inside, `"`)
		require.LessOrEqual(t, utf8.RuneCountInString(inside), 32)
		for _, r := range inside {
			require.True(t, unicode.IsPrint(r) && !unicode.Is(unicode.M, r), "%q", r)
		}
	})
}
