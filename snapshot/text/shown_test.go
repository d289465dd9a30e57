package text_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/text"
)

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
