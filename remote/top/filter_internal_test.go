package top

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func (m *Model) ids() (list []string) {
	for _, r := range m.rows {
		list = append(list, strings.Join(strings.Fields(m.line(&r)), " "))
	}
	return list
}

// line is a row by the cells that name it.
func (m *Model) line(r *tabRow) string {
	var b strings.Builder
	for _, c := range m.scene.columns(m.tab)[:2] {
		b.WriteString(c.cell(r).Plain() + " ")
	}
	return b.String()
}

func TestFilter(t *testing.T) {
	for _, row := range []struct {
		tab  string
		text string
		want int // rows
	}{
		{"1", "", 5},
		{"1", "host~gpu-1", 1},
		{"1", "HOST~GPU-1", 1},
		{"1", "host=gpu", 0},
		{"1", "host!=gpu-1", 4},
		{"1", "host!~gpu", 0},
		{"1", "user=bob", 2},
		{"1", "user=bo", 0},
		{"1", "user!=bob", 3},
		{"1", "user=bob user=alice", 1},
		{"1", "free>0", 2},
		{"1", "free>=3", 1},
		{"1", "state=finding", 1},
		{"1", "state=failed", 2},
		{"2", "state=exempt", 1},
		{"1", "label=rack=r1", 1},
		{"1", "rule~non-env", 1},
		{"1", "carol", 1},
		{"2", "util<5", 7},
		{"2", "util<=97", 11},
		{"2", "util=97%", 4},
		{"2", "util!=97", 10},
		{"2", "mem>40gi", 1},
		{"2", "state=unknown", 3},
		{"2", "gpu=0 host~gpu-1", 1},
		{"2", "state=idle", 1},
		{"2", `command~"train.py --epochs"`, 5},
		{"2", "pid=4011", 1},
		{"2", "model~a100", 14},
		{"3", "user=bob", 1},
		{"3", "idle>0", 2},
		{"3", "gpus>=2 mem>50gi", 1},
		{"3", "host=gpu-1", 4}, // users have no host: ignored, and said
		{"4", "user=bob", 1},
		{"4", "state=act", 1},
		{"4", "pid=4011", 1},
		{"5", "user=bob", 3},
		{"5", "pid!=4011", 5},
		{"5", "mem>100g", 0},
		{"5", "state=finding", 1},
		{"5", "container=x", 0},
		{"6", "event=outcome", 1},
		{"6", "state=terminated", 1},
		{"7", "class=unreachable", 1},
		{"7", "route", 1},
	} {
		t.Run(row.tab+" "+row.text, func(t *testing.T) {
			m := viewed(t, sample(), 200, 40)
			m.press(row.tab, "/", row.text, "enter")
			require.Equal(t, browse, m.mode, m.message)
			require.Len(t, m.rows, row.want, "%v", m.ids())
		})
	}
}

func TestAFilterThatCantBeUnderstoodIsSaid(t *testing.T) {
	m := viewed(t, sample(), 120, 12)
	m.press("/", "usr=bob", "enter")
	require.Equal(t, typing, m.mode)
	require.Equal(t, `unknown field usr (did you mean "user"?)`, m.screen()[10])
	require.Contains(t, m.screen()[11], "filter: usr=bob")
	require.Len(t, m.rows, 5)
	m.press("ctrl+u", "x=1", "enter")
	require.Regexp(t, "^unknown field x .*container event .* gpus .* user util", strings.Join(m.screen()[9:11], " "), "all of a long message")
	m.press("ctrl+u", "user=bob host=gpu-2", "enter")
	require.EqualValues(t, "gpu-2", m.selected().id.host, "gpu-1 was selected, and who typed the filter has left it out")
	m.press("/", "ctrl+u", "user=bob", "enter")
	require.Len(t, m.rows, 2)
	require.Contains(t, m.screen()[11], "filter: user=bob")
	m.press("3", "/", "ctrl+u", "host=gpu-1", "enter")
	require.Contains(t, m.screen()[11], "filter: host=gpu-1 (not on this tab: host)")
	m.press("esc")
	require.Empty(t, m.filter.String())
	m.press("1", "/", "user=nobody", "enter")
	require.Contains(t, strings.Join(m.screen(), "\n"), "no row meets the filter (Esc removes it)")
	m.press("/", "backspace", "esc")
	require.Equal(t, "user=nobody", m.filter.String(), "Esc while typing changes nothing")
}

func FuzzFilter(fuzz *testing.F) {
	for _, seed := range []string{"host~gpu-1 user=bob util<5 state=finding", `command~"a b" mem>=4g`, `x"y z"w !~ <`, "pid!=-1 util=NaN"} {
		fuzz.Add(seed)
	}
	m := viewed(fuzz, sample(), 80, 24)
	fuzz.Fuzz(func(t *testing.T, s string) {
		f, err := ParseFilter(s)
		if err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		again := proctest.Try(ParseFilter(f.String())).OK(t)
		require.Equal(t, f, again, "what is shown as the filter is the filter")
		for tab := range tabCount {
			for _, r := range m.scene.rows(tab) {
				f.matches(&r)
			}
		}
	})
}

func TestSplitWords(t *testing.T) {
	for text, want := range map[string][]string{
		" ":                              nil,
		" a\t b ":                        {"a", "b"},
		`x"y z"w  user="bob s" c`:        {"xy zw", "user=bob s", "c"},
		`"" a""`:                         {"", "a"},
		"host=gpu-ü\u2003\"a\u00a0b\"\n": {"host=gpu-ü", "a\u00a0b"},
	} {
		words := proctest.Try(splitWords(text)).OK(t)
		require.Equal(t, want, words, text)
	}
}

func TestErrors(t *testing.T) {
	for text, want := range map[string]string{
		"usr=bob":      `unknown field usr (did you mean "user"?)`,
		"util~5":       "util is a number: compare it with =, !=, <, <=, > or >=",
		"host<3":       "host is a text: compare it with =, !=, ~ or !~",
		"util<nan":     "util: nan is not a number",
		"util<much":    "util: much is not a number",
		"mem>40gb":     "mem: ",
		"user=":        "user=: a value is missing",
		`user="bob`:    `a closing " is missing`,
		"user!bob":     "write != or !~ after the field",
		"zzz=1":        "the fields are class command",
		"=bob":         `unknown field ""`,
		"util<\x1b[2J": `util: "?[2j" is not a number`,
	} {
		require.ErrorContains(t, proctest.Try(ParseFilter(text)).Err, want, text)
	}
	require.ErrorContains(t, proctest.Try(ParseFilter(strings.Repeat("x", maxFilterLength+1))).Err, "longer than")
}
