package metrics_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/metrics"
)

// sample is a line of the text format, as its specification has it read.
type sample struct {
	name   string
	labels map[string]string
	value  string
}

// parseSample is a small reader of the format that shares nothing with the writer.
func parseSample(line string) (s sample, err error) {
	s.labels = make(map[string]string)
	end := strings.IndexAny(line, "{ ")
	if end < 0 {
		return s, fmt.Errorf("no value in %q", line)
	}
	s.name, line = line[:end], line[end:]
	for line[0] == '{' || line[0] == ',' {
		name, rest, ok := strings.Cut(line[1:], `="`)
		if !ok {
			return s, fmt.Errorf("no label in %q", line)
		}
		var value strings.Builder
		for ; rest != "" && rest[0] != '"'; rest = rest[1:] {
			if rest[0] == '\\' {
				rest = rest[1:]
				value.WriteByte(map[byte]byte{'\\': '\\', '"': '"', 'n': '\n'}[rest[0]])
				continue
			}
			value.WriteByte(rest[0])
		}
		if len(rest) < 2 {
			return s, fmt.Errorf("a label without an end in %q", line)
		}
		s.labels[name], line = value.String(), rest[1:]
	}
	s.value = strings.TrimPrefix(strings.TrimPrefix(line, "}"), " ")
	return s, nil
}

var names = []string{
	"", "alice", `a "quoted" name`, `C:\temp\`, "two\nlines", "tab\there", "\r", "{eid=\"1\"} 1\n", "𝄞 ü", "\u202egnp.exe", `\n`, `\\"`,
	strings.Repeat("x", 10<<10),
}

func TestLabelsKeepTheirValues(t *testing.T) {
	for _, name := range names {
		var w metrics.Writer
		w.Gauge("genv_x", "Help.", "username", "eid")
		w.Sample(1, name, "7")
		lines := strings.SplitAfter(string(w.Text()), "\n")
		require.Equal(t, []string{"# HELP genv_x Help.\n", "# TYPE genv_x gauge\n", lines[2], ""}, lines, "one line for one sample")
		s, err := parseSample(strings.TrimSuffix(lines[2], "\n"))
		require.NoError(t, err)
		require.Equal(t, sample{"genv_x", map[string]string{"username": name, "eid": "7"}, "1"}, s)
	}
}

func TestWhatALabelCannotHave(t *testing.T) {
	for name, want := range map[string]string{"a\xffb": "a\uFFFDb", "\xff\xfe": "\uFFFD", "a\x00b": "a\uFFFDb", "\xc3": "\uFFFD"} {
		var w metrics.Writer
		w.Gauge("genv_x", "Help.", "username")
		w.Sample(1, name)
		require.True(t, utf8.Valid(w.Text()))
		require.Contains(t, string(w.Text()), fmt.Sprintf("genv_x{username=%q} 1\n", want))
	}
}

func TestHelpIsOneLine(t *testing.T) {
	var w metrics.Writer
	w.Gauge("genv_x", "Two\nlines, \\ and \"quotes\".")
	w.Sample(2)
	require.Equal(t, "# HELP genv_x Two\\nlines, \\\\ and \"quotes\".\n# TYPE genv_x gauge\ngenv_x 2\n", string(w.Text()))
}

func TestValues(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 1: "1", 0.5: "0.5", 85520809984: "85520809984", -3: "-3", 1e21: "1000000000000000000000", math.Inf(1): "+Inf",
	} {
		var w metrics.Writer
		w.Gauge("x", "Help.")
		w.Sample(value)
		require.True(t, strings.HasSuffix(string(w.Text()), "\nx "+want+"\n"), "%s", w.Text())
	}
}

// FuzzLabel: whatever a name is, it stays one label of one sample.
func FuzzLabel(f *testing.F) {
	for _, name := range names {
		f.Add(name, "7")
	}
	f.Add("\xff\x00", "\x00\"")
	f.Fuzz(func(t *testing.T, a, b string) {
		var w metrics.Writer
		w.Gauge("genv_x", "Help.", "username", "eid")
		w.Sample(1, a, b)
		text := string(w.Text())
		require.True(t, utf8.ValidString(text))
		require.NotContains(t, text, "\x00")
		require.Equal(t, 3, strings.Count(text, "\n"))
		s, err := parseSample(strings.TrimSuffix(strings.SplitAfter(text, "\n")[2], "\n"))
		require.NoError(t, err)
		clean := func(s string) string {
			return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
		}
		require.Equal(t, sample{"genv_x", map[string]string{"username": clean(a), "eid": clean(b)}, "1"}, s)
	})
}
