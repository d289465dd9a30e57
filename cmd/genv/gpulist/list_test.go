package gpulist

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"
	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/cmd/genv/render"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

var now = time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)

// lab is a fleet of two hosts with a GPU in each state.
func lab() []gpus.Row {
	gib := func(n float64) *int64 { return new(int64(n * (1 << 30))) }
	gpu := func(index snapshot.DeviceIndex, model string, state gpus.State, used, total float64, percent, celsius int, watts float64) *gpus.GPU {
		return &gpus.GPU{
			Index: index, UUID: snapshot.GPUUUID(fmt.Sprintf("GPU-%d", index)), Model: model, Driver: "550.163.01", State: state, MemoryUsed: gib(used), MemoryTotal: gib(total),
			Utilization: &percent, Temperature: &celsius, Power: &watts,
		}
	}
	busy := gpu(0, "NVIDIA A100-SXM4-80GB", gpus.Busy, 61.25, 80, 97, 63, 391.5)
	busy.Attached = []gpus.Attachment{{EID: "4100", Name: "train", User: "alice", Since: now.Add(-50 * time.Hour)}}
	busy.Processes = []gpus.Process{
		{PID: 4242, User: "alice", Command: "/opt/conda/bin/python train.py --lr=0.1 --data /srv/sets/imagenet --epochs 90", Memory: gib(60.1)},
		{PID: 5150, User: "bob", Command: "python -m jupyter lab", Memory: gib(1.1), Container: strings.Repeat("4c01db0b339c", 6)[:64]},
	}
	attached := gpu(1, "NVIDIA A100-SXM4-80GB", gpus.Attached, 0, 80, 0, 31, 55)
	attached.Attached = []gpus.Attachment{{EID: "5100", User: "bob", Since: now.Add(-3 * time.Hour)}, {EID: "4100", Name: "my project", User: "alice"}}
	idle := gpu(2, "NVIDIA A100-SXM4-80GB", gpus.Idle, 12, 80, 0, 35, 61)
	idle.Processes = []gpus.Process{{PID: 77, User: "uid 1004", Command: "VLLM::EngineCore", Memory: nil}}
	lost := &gpus.GPU{Index: 1, State: gpus.Unknown, MemoryTotal: gib(24)}
	return []gpus.Row{
		{Host: "gpu-01.lab.example", GPU: busy},
		{Host: "gpu-01.lab.example", GPU: attached},
		{Host: "gpu-01.lab.example", GPU: idle},
		{Host: "gpu-02.lab.example", GPU: gpu(0, "NVIDIA GeForce RTX 4090", gpus.Free, 0.4, 24, 0, 38, 22)},
		{Host: "gpu-02.lab.example", GPU: lost},
	}
}

// listOf is the list of the lab.
func listOf(s *Flags) *List {
	l := &List{Hosts: 2}
	byHost := map[string][]gpus.GPU{}
	for _, r := range lab() {
		byHost[string(r.Host)] = append(byHost[string(r.Host)], *r.GPU)
	}
	for _, host := range []string{"gpu-01.lab.example", "gpu-02.lab.example"} {
		l.Add(host, byHost[host], s)
	}
	return l
}

func written(t *testing.T, l *List, s *Flags, output Flags) string {
	t.Helper()
	var b strings.Builder
	output.Now = now
	if output.Format == "" {
		output.Format = "tui"
	}
	output.Free, output.User, output.Model, output.Sort = s.Free, s.User, s.Model, s.Sort
	require.NoError(t, l.Write(&b, &output))
	return b.String()
}

// TestREADME: the list in the README has the columns that there are.
func TestREADME(t *testing.T) {
	readme := proctest.ReadFile(t, "../../../README.md")
	shown := regexp.MustCompile(`(?m)^    (HOST .*)$`).FindStringSubmatch(string(readme))
	require.Len(t, shown, 2)
	header, _, _ := strings.Cut(written(t, &List{Rows: lab(), Hosts: 2}, &Flags{}, Flags{}), "\n")
	require.Equal(t, strings.Fields(header), strings.Fields(shown[1]))
}

// TestWidths pins what a terminal of each width shows. GENV_GOLDEN=1 writes the files.
func TestWidths(t *testing.T) {
	for _, width := range []int{0, 40, 80, 120, 160, 200} {
		got := written(t, listOf(&Flags{}), &Flags{}, Flags{Width: width})
		file := filepath.Join("testdata", fmt.Sprintf("width-%d.txt", width))
		if os.Getenv("GENV_GOLDEN") != "" {
			require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
		}
		require.Equal(t, proctest.ReadText(t, file), got, "width %d", width)
	}
}

// TestNoLineIsTooLong: at each width down to that of the columns that are always there.
func TestNoLineIsTooLong(t *testing.T) {
	for width := 30; width < 300; width++ {
		got := written(t, listOf(&Flags{}), &Flags{}, Flags{Width: width, NoSummary: true})
		for line := range strings.Lines(got) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), width, line)
			require.NotRegexp(t, ` \n$`, line)
		}
	}
}

// TestHostsStayDistinct: names are only cut as far as they differ.
func TestHostsStayDistinct(t *testing.T) {
	for want, hosts := range map[string][]string{
		"gpu-01.lab.…|gpu-02.lab.…":             {"gpu-01.lab.example.org", "gpu-02.lab.example.org"},
		"cluster-server-01…|cluster-server-02…": {"cluster-server-01.example.org", "cluster-server-02.example.org"},
		"cluster-server-1|cluster-server-10":    {"cluster-server-1", "cluster-server-10"},
		"a-rather-lo…":                          {"a-rather-long-name", "a-rather-long-name"},
	} {
		list := List{Hosts: len(hosts)}
		for _, h := range hosts {
			list.Rows = append(list.Rows, gpus.Row{Host: snapshot.Hostname(h), GPU: &gpus.GPU{State: gpus.Free}})
		}
		var shown []string
		for line := range strings.Lines(written(t, &list, &Flags{}, Flags{Output: render.Output{NoHeader: true}, Width: 24, NoSummary: true})) {
			shown = append(shown, strings.Fields(line)[0])
		}
		require.Equal(t, want, strings.Join(slices.Compact(shown), "|"))
	}
}

// TestWideCharacters: Chinese and emoji take two cells each, which moves no column.
func TestWideCharacters(t *testing.T) {
	l := List{Hosts: 1, Rows: []gpus.Row{
		{Host: "gpu-01", GPU: &gpus.GPU{State: gpus.Busy, Model: "图形处理器一号图形处理器", Processes: []gpus.Process{{PID: 7, User: "alice", Command: strings.Repeat("训练🚀", 30)}}}},
		{Host: "gpu-02", GPU: &gpus.GPU{State: gpus.Free}},
	}}
	for _, width := range []int{60, 80, 120} {
		text := written(t, &l, &Flags{}, Flags{Width: width, NoSummary: true})
		lines := strings.Split(text, "\n")
		for _, line := range lines {
			require.LessOrEqual(t, ansi.StringWidth(line), width, line)
		}
		before := func(line, word string) int {
			left, _, found := strings.Cut(line, word)
			require.True(t, found, line)
			return ansi.StringWidth(left)
		}
		require.Equal(t, before(lines[0], "STATE"), before(lines[1], "busy"), text)
		require.Equal(t, before(lines[0], "STATE"), before(lines[2], "free"), text)
	}
}

func TestSelection(t *testing.T) {
	model := func(pattern string) Model { return Model{Pattern: pattern} }
	for name, row := range map[string]struct {
		s       Flags
		want    string
		summary string
	}{
		"all":                    {Flags{}, "01/0 01/1 01/2 02/0 02/1", "1 of 5 GPUs is free on 2 hosts; the state of 1 is unknown"},
		"free":                   {Flags{Free: true}, "02/0", "1 of 5 GPUs is free on 2 hosts; the state of 1 is unknown"},
		"a user's":               {Flags{User: "alice"}, "01/0 01/1", "alice has or uses 2 of 5 GPUs on 2 hosts"},
		"who only uses one":      {Flags{User: "uid 1004"}, "01/2", `"uid 1004" has or uses 1 of 5 GPUs on 2 hosts`},
		"a part of a name":       {Flags{User: "ali"}, "", "ali has or uses 0 of 5 GPUs on 2 hosts"},
		"a model":                {Flags{Model: model("rtx")}, "02/0", "1 of 1 GPU is free on 2 hosts"},
		"with wildcards":         {Flags{Model: model("a100*80g?")}, "01/0 01/1 01/2", "0 of 3 GPUs are free on 2 hosts"},
		"no such model":          {Flags{Model: model("a100.sxm")}, "", "0 of 0 GPUs are free on 2 hosts"},
		"free, of a model":       {Flags{Free: true, Model: model("A100")}, "", "0 of 3 GPUs are free on 2 hosts"},
		"by state":               {Flags{Sort: "state"}, "02/0 01/1 01/2 01/0 02/1", ""},
		"by model":               {Flags{Sort: "model"}, "01/0 01/1 01/2 02/0 02/1", ""},
		"by user":                {Flags{Sort: "user"}, "01/0 01/1 01/2 02/0 02/1", ""},
		"by memory":              {Flags{Sort: "memory"}, "01/0 01/2 02/0 01/1 02/1", ""},
		"by utilization":         {Flags{Sort: "utilization"}, "01/0 01/1 01/2 02/0 02/1", ""},
		"by temperature":         {Flags{Sort: "temperature"}, "01/0 02/0 01/2 01/1 02/1", ""},
		"by power":               {Flags{Sort: "power"}, "01/0 01/2 01/1 02/0 02/1", ""},
		"by since":               {Flags{Sort: "since"}, "01/0 01/1 01/2 02/0 02/1", ""},
		"a user's, by since":     {Flags{User: "bob", Sort: "since"}, "01/0 01/1", ""},
		"a name with wildcards":  {Flags{User: "*"}, "", `"*" has or uses 0 of 5 GPUs on 2 hosts`},
		"a pattern that is junk": {Flags{Model: model("[a-")}, "", "0 of 0 GPUs are free on 2 hosts"},
	} {
		t.Run(name, func(t *testing.T) {
			l := listOf(&row.s)
			text := written(t, l, &row.s, Flags{})
			var got []string
			for _, r := range l.Rows {
				got = append(got, fmt.Sprintf("%s/%d", r.Host[4:6], r.Index))
			}
			require.Equal(t, row.want, strings.Join(got, " "))
			if row.summary != "" {
				require.True(t, strings.HasSuffix(text, "\n"+row.summary+"\n"), text)
			}
		})
	}
}

func TestColour(t *testing.T) {
	plain, colourful := written(t, listOf(&Flags{}), &Flags{}, Flags{Width: 120}), written(t, listOf(&Flags{}), &Flags{}, Flags{Width: 120, Colourful: true})
	require.NotContains(t, plain, "\x1b")
	require.Contains(t, colourful, "\x1b[32mfree\x1b[0m")
	require.Equal(t, plain, regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(colourful, ""), "colour moves nothing")
}

func TestFlagsOfOutput(t *testing.T) {
	text := written(t, listOf(&Flags{}), &Flags{}, Flags{Output: render.Output{NoHeader: true, Timestamp: true}, NoSummary: true})
	require.Equal(t, 5, strings.Count(text, "\n"))
	require.NotContains(t, text, "HOST")
	require.Contains(t, text, now.Add(-50*time.Hour).Local().Format("  2006-01-02 15:04  "))

	text = written(t, listOf(&Flags{Free: true}), &Flags{Free: true}, Flags{Output: render.Output{Format: "csv", NoHeader: true, Timestamp: true}, Width: 10, Colourful: true})
	require.Equal(t, "gpu-02.lab.example,0,GPU-0,NVIDIA GeForce RTX 4090,free,429496729,25769803776,0,38,22,,,,,550.163.01\n", text, "a line for each GPU, whole, and no summary")
	text = written(t, listOf(&Flags{User: "bob"}), &Flags{User: "bob"}, Flags{Output: render.Output{Format: "csv", Timestamp: true}})
	rows := proctest.Try(csv.NewReader(strings.NewReader(text)).ReadAll()).OK(t)
	require.Equal(t, []string{"alice, bob", `bob 5100, alice "my project"`, "2026-11-20T19:00:00Z"}, rows[2][10:13])
}

// TestOneHost: the GPUs of this machine have no column for it.
func TestOneHost(t *testing.T) {
	var l List
	l.Add("", []gpus.GPU{{State: gpus.Free}}, &Flags{})
	require.Equal(t, "GPU  MODEL  STATE  MEM GIB  UTIL  TEMP  POWER  ATTACHED TO  SINCE  DRIVER  PROCESSES\n0    ?      free   ?/?      ?     ?     ?                          ?\n\n1 of 1 GPU is free\n",
		written(t, &l, &Flags{}, Flags{}))
	require.Equal(t, "0,,,free,,,,,,,,,,\n", written(t, &l, &Flags{}, Flags{Output: render.Output{Format: "csv", NoHeader: true}}))
}

// TestHostileNames: each GPU is a line, and nothing but text reaches the terminal or a spreadsheet.
func TestHostileNames(t *testing.T) {
	for _, evil := range []string{
		"\x1b[2J\x1b]0;x\a", "a\nb 1 free\r\n", "<script>alert(1)</script>", "=cmd|' /C calc'!A0", `"; bob 7 ls`, "\u202egnp.exe", "e\u0301\u0301", "\xff\xfe",
		strings.Repeat("x", 10_000), strings.Repeat("\x1b", 10_000), "a, bob 4242; carol 1",
	} {
		g := gpus.GPU{
			Model: evil, UUID: snapshot.GPUUUID(evil), State: gpus.Busy, Attached: []gpus.Attachment{{EID: snapshot.EnvID(evil), User: snapshot.Username(evil)}, {Name: evil}},
			Processes: []gpus.Process{{PID: 1, User: snapshot.Username(evil), Command: evil, Container: evil}},
		}
		s := &Flags{User: snapshot.Username(evil)}
		l := List{Hosts: 1}
		l.Add(evil, []gpus.GPU{g}, s)
		require.Len(t, l.Rows, 1)
		for _, width := range []int{0, 80} {
			text := written(t, &l, s, Flags{Width: width})
			require.Equal(t, 4, strings.Count(text, "\n"), "a header, a GPU, and the summary: %q", text)
			requireHarmless(t, text)
			row := strings.Split(text, "\n")[1]
			require.True(t, width == 0 || ansi.StringWidth(row) <= width, row)
		}
		for _, c := range gpus.Columns() {
			if c.CSV != "ATTACHED TO" && c.CSV != "PROCESSES" {
				continue
			}
			cell := c.Data(&gpus.Row{GPU: &g}, nil)
			require.NotRegexp(t, "(^|[;,] )(bob|carol)", regexp.MustCompile(`"[^"]*"`).ReplaceAllString(cell, "quoted"), "that looks like another one")
		}
		text := written(t, &l, s, Flags{Output: render.Output{Format: "csv", NoHeader: true}})
		requireHarmless(t, text)
		rows := proctest.Try(csv.NewReader(strings.NewReader(text)).ReadAll()).OK(t)
		require.Len(t, rows, 1)
		for _, cell := range rows[0] {
			require.False(t, strings.HasPrefix(cell, "="), cell)
		}
	}
}

func requireHarmless(t *testing.T, text string) {
	t.Helper()
	require.True(t, utf8.ValidString(text))
	require.NotRegexp(t, "[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e]", text)
}
