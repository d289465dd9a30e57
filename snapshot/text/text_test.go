package text_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/text"
)

func TestParseDuration(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "10": 10 * time.Second, "010": 10 * time.Second, "0.5": time.Second / 2, ".5": time.Second / 2, "5.": 5 * time.Second,
		"10s": 10 * time.Second, "1h30m": 90 * time.Minute, "500ms": 500 * time.Millisecond, "2h": 2 * time.Hour, "1.5h": 90 * time.Minute,
		"7d": 168 * time.Hour, "0d": 0, "1d12h": 36 * time.Hour, "1d1s": 24*time.Hour + time.Second, "65535d": 65535 * 24 * time.Hour,
		"999999999": 999999999 * time.Second,
	} {
		d, err := text.ParseDuration(s)
		require.NoError(t, err, s)
		require.Equal(t, want, d, s)
	}
}

func TestParseDurationRefuses(t *testing.T) {
	for _, s := range []string{
		"", " ", ".", "d", "soon", "-1", "-1s", "+1", "+1s", "1 s", "1.5d", "2d-1h", "2d+1h", "1d12", "1h1d", "1d1d", "65536d", "1w", "1e3", "0x10", "1_0",
		"nan", "inf", "1.2.3", "1000000000", strings.Repeat("9", 400), "9999999h", "65535d2562047h", "١",
	} {
		_, err := text.ParseDuration(s)
		require.ErrorContains(t, err, "is not a duration; write it as 10s, 500ms, 15m, 1h30m or 7d", s)
	}
}

func TestFormatDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "10s": 10 * time.Second, "500ms": 500 * time.Millisecond, "1m30s": 90 * time.Second, "15m": 15 * time.Minute, "1h30m": 90 * time.Minute,
		"2h": 2 * time.Hour, "2h0m1s": 2*time.Hour + time.Second, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "1d1s": 24*time.Hour + time.Second,
	} {
		require.Equal(t, want, text.FormatDuration(d))
		again, err := text.ParseDuration(want)
		require.NoError(t, err)
		require.Equal(t, d, again)
	}
}

func TestShortDuration(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0s": 0, "1s": 1400 * time.Millisecond, "59s": 59 * time.Second, "1m": 59*time.Second + 600*time.Millisecond, "2m": 90 * time.Second,
		"2h30m": 2*time.Hour + 30*time.Minute + 10*time.Second, "14d": 14*24*time.Hour - time.Second, "1d5m": 24*time.Hour + 5*time.Minute,
	} {
		require.Equal(t, want, text.ShortDuration(d))
	}
}

// FuzzParseDuration: what is read is zero or more, and is read again as written.
func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"0", "10", "0.5", "1d12h", "500ms", "-1", "1d-1h", "nan", "65535d", "1µs"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := text.ParseDuration(s)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, d, time.Duration(0))
		again, err := text.ParseDuration(text.FormatDuration(d))
		require.NoError(t, err)
		require.Equal(t, d, again)
	})
}

func TestParseMemory(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "44040192": 44040192, "5b": 5, "4k": 4e3, "4m": 4e6, "4g": 4e9,
		"4ki": 4 << 10, "4mi": 4 << 20, "4gi": 4 << 30, "81559mi": 81559 << 20, "007g": 7e9,
		"9223372036854775807": math.MaxInt64, "9223372036g": 9223372036e9, "8589934591gi": 8589934591 << 30,
	} {
		for _, s := range []string{s, strings.ToUpper(s)} {
			bytes, err := text.ParseMemory(s)
			require.NoError(t, err, s)
			require.Equal(t, want, bytes, s)
		}
	}
}

func TestParseMemoryRefuses(t *testing.T) {
	for _, s := range []string{
		"", "g", "gi", "-1", "-4g", "+4g", "4 g", " 4g", "4g ", "4.5g", "4t", "4kb", "4gib", "0x10", "1e3", "4g4", "١g", "4g\n",
		"9223372036854775808", "9223372037g", "8589934592gi", strings.Repeat("9", 1000),
	} {
		_, err := text.ParseMemory(s)
		require.Error(t, err, s)
	}
	_, err := text.ParseMemory("4t")
	require.ErrorContains(t, err, "b, k, m, g, ki, mi or gi")
}

func TestMegabytes(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0m", 999_999: "0m", 1e6: "1m", 4e9: "4000m", 81559 << 20: "85520m"} {
		require.Equal(t, want, text.Megabytes(bytes))
	}
}

// index is an index as other packages have them.
type index int

func TestIndices(t *testing.T) {
	for list, want := range map[string][]index{"0": {0}, "0,2": {0, 2}, "7,1,7": {7, 1, 7}, "00": {0}} {
		indices, err := text.ParseIndices[index](list)
		require.NoError(t, err)
		require.Equal(t, want, indices)
	}
	for _, list := range []string{"", ",", "0,", "0, 1", "-1", "+1", "a", "0-3", "65536"} {
		_, err := text.ParseIndices[index](list)
		require.ErrorContains(t, err, "is not the index of a GPU", list)
	}
	require.Empty(t, text.JoinIndices([]index{}))
	require.Equal(t, "3", text.JoinIndices([]index{3}))
	require.Equal(t, "3,0,12", text.JoinIndices([]index{3, 0, 12}))
}

func TestHint(t *testing.T) {
	known := []string{"port", "user", "gpu-01", "gpu-02", "max-devices-per-user", ".lab", "node-07.lab.example"}
	for word, want := range map[string]string{
		"prot": "port", "ports": "port", "PORT": "port", "usr": "user", "gpu-1": "gpu-01", "gpu-02": "gpu-02",
		"max-device-per-usr": "max-devices-per-user", "Node-07": "node-07.lab.example",
	} {
		require.Equal(t, `did you mean "`+want+`"?`, text.Hint(word, known, "far from all"), word)
	}
	require.Equal(t, "help", text.Nearest("hepl", []string{"shell", "help", "hello"}), "of several it begins in the same way")
	for _, word := range []string{"x", "", "something", "po"} {
		require.Equal(t, "far from all", text.Hint(word, known, "far from all"), word)
	}
}

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"plain": "plain", "grün 漢字": "grün 漢字", "\x1b[2J": `\x1b[2J`, "a\tb\nc": `a\tb\nc`, "\xff\xfe": `\xff\xfe`,
		"\u202egnp.exe": `\u202egnp.exe`, "\u200b": `\u200b`, "\uFFFD": "\uFFFD", "": "", "\x00": `\x00`, "a\u00a0b": `a\u00a0b`, "it's": "it's", "'\a'": `'\a'`,
	} {
		require.Equal(t, want, text.Printable(s), "%q", s)
	}
	require.Equal(t, "a\nb\\r\n\\x1b[2J", text.PrintableLines("a\nb\r\n\x1b[2J"))
	require.Equal(t, `a b \x1b[2J c`, text.OneLine(" a\n b\t\x1b[2J\r\nc\n"))
	require.Equal(t, "a?b?c??", text.Masked("a\nb\xffc\u202e\u200b"))
}

// FuzzPrintable: whatever the text, a terminal shows it on one line.
func FuzzPrintable(f *testing.F) {
	for _, s := range []string{"", "plain", "\x1b[2J\r\n\xff", "\u202e", "a\u00a0b", "'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, shown := range []string{text.Printable(s), text.OneLine(s), text.Masked(s)} {
			for _, r := range shown {
				require.True(t, unicode.IsPrint(r), "%q", shown)
			}
		}
		require.Equal(t, text.Printable(s), text.Printable(text.Printable(s)))
	})
}

func TestCutAndShorten(t *testing.T) {
	for _, tt := range []struct {
		text           string
		n              int
		cut, shortened string
	}{
		{"alice", 5, "alice", "alice"},
		{"alice", 4, "alic", "ali…"},
		{"ééé", 3, "é", "ééé"},
		{"ééé", 2, "é", "é…"},
		{"", 1, "", ""},
	} {
		require.Equal(t, tt.cut, text.Cut(tt.text, tt.n), tt.text)
		require.Equal(t, tt.shortened, text.Shorten(tt.text, tt.n), tt.text)
	}
}

func TestCheckUsername(t *testing.T) {
	for _, name := range []string{
		"bob", "Bob", "b", "1004", "svc-gpu", "a.b_c", "ws$", "ann@corp.example", `CORP\jdoe`, "CORP+jdoe", "CORP/jdoe", "First Last", "müller", "o'brien",
		"李雷", "a=b", "x@y@z", strings.Repeat("a", 256),
	} {
		require.NoError(t, text.CheckUsername(name), name)
	}
	for name, want := range map[string]string{
		"":                       "the user name is empty",
		"-l":                     "begins with a dash",
		"a:b":                    "not a user name",
		"a,b":                    "not a user name",
		" a":                     "not a user name",
		"a ":                     "not a user name",
		"a\nb":                   "not a user name",
		"a\x1b[2J":               "not a user name",
		"a\xff":                  "not a user name",
		strings.Repeat("a", 257): "not a user name",
	} {
		require.ErrorContains(t, text.CheckUsername(name), want, "%q", name)
	}
}

func TestTail(t *testing.T) {
	said := &text.Tail{Limit: 4096}
	_, err := said.Write([]byte(strings.Repeat("x", 9000) + "\nPermission denied (publickey).\r\n\r\n"))
	require.NoError(t, err)
	require.Len(t, said.String(), 4096)
	require.Equal(t, "Permission denied (publickey).", text.LastLine(said.String()))
	require.Empty(t, text.LastLine(""))
}

func TestLate(t *testing.T) {
	refused := errors.New("connection refused")
	for _, tt := range []struct {
		err    error
		within time.Duration
		want   string
	}{
		{context.DeadlineExceeded, 5 * time.Second, "no answer within 5s"},
		{context.DeadlineExceeded, 0, "no answer in time"},
		{fmt.Errorf("ask: %w (after)", context.DeadlineExceeded), 90 * time.Second, "ask: no answer within 1m30s (after)"},
		{fmt.Errorf("read: %w", os.ErrDeadlineExceeded), time.Second, "read: no answer within 1s"},
		{errors.New("the host says: context deadline exceeded"), 0, "the host says: no answer in time"},
		{refused, time.Second, "connection refused"},
		{context.Canceled, time.Second, "context canceled"},
	} {
		got := text.Late(tt.err, tt.within)
		require.EqualError(t, got, tt.want)
		require.ErrorIs(t, got, tt.err)
	}
	require.NoError(t, text.Late(nil, time.Second))
	require.Same(t, refused, text.Late(refused, time.Second)) //nolint:testifylint // it is the same error
}
