package metrics_test

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// whole is everything of a fleet with these names.
func whole(host, model, user, class string) string {
	c := metrics.NewCounters(noon, 10*time.Second)
	c.Consume(cycleAt(0, holders(snapshot.Hostname(host), user, user+"2")).AtEnd(), nil)
	g := measured(h100(0, gpus.Unknown), 3, 5, 7)
	g.Model, g.UUID = model, snapshot.GPUUUID(model)
	hosts := []live.FleetHost{
		{Name: snapshot.Hostname(host), Seen: noon, GPUs: []gpus.GPU{g, h100(1, gpus.Busy)}},
		{Name: snapshot.Hostname(host + "2"), Failure: &remote.Failure{Class: remote.Class(class)}},
	}
	users := []live.FleetUser{{Name: snapshot.Username(user), Attached: 1}, {Name: snapshot.Username(user + "2"), Attached: 1}}
	var text []byte
	for _, part := range [][]byte{
		metrics.Build("v1"), c.Text(true), metrics.Findings(&live.FleetState{Enforcing: true, Cycle: 1}), c.Users(users), metrics.Hosts(hosts), metrics.Ages(hosts, noon),
	} {
		text = append(text, part...)
	}
	return string(text)
}

var (
	helpLine = regexp.MustCompile(`^# HELP (genv_[a-z_]+) [^\n]+$`)
	typeLine = regexp.MustCompile(`^# TYPE (genv_[a-z_]+) (gauge|counter|histogram)$`)
)

// values reads a text, and refuses what is not in the format: a family that is not whole,
// a sample that is there twice, or one without its help and type.
func values(t testing.TB, text string) map[string]float64 {
	series, begun, family := make(map[string]float64), make(map[string]bool), ""
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		if m := helpLine.FindStringSubmatch(lines[i]); m != nil {
			family = m[1]
			require.False(t, begun[family], "%s is there twice", family)
			begun[family] = true
			i++
			require.Equal(t, family, typeLine.FindStringSubmatch(lines[i])[1])
			continue
		}
		s := proctest.Try(parseSample(lines[i])).OK(t)
		require.Contains(t, []string{family, family + "_bucket", family + "_sum", family + "_count"}, s.name)
		value := proctest.Try(strconv.ParseFloat(s.value, 64)).OK(t, lines[i])
		key := lines[i][:len(lines[i])-len(s.value)-1]
		require.NotContains(t, series, key, "a series is there twice")
		series[key] = value
		for name, label := range s.labels {
			require.True(t, name == "host" || len(label) <= 128, "%s is not cut: %d bytes", name, len(label))
		}
	}
	return series
}

func TestPromtoolAcceptsEverything(t *testing.T) {
	complaints, err := promtool(t, whole("gpu-1", "NVIDIA H100", "alice", "timeout"))
	require.NoError(t, err, complaints)
	require.Empty(t, complaints)
}

// TestNamesApartFrom143: a Prometheus may scrape a controller and `genv remote monitor`.
func TestNamesApartFrom143(t *testing.T) {
	old := make(map[string]bool)
	for line := range strings.Lines(string(metrics.Genv143(nil))) {
		if m := helpLine.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			old[m[1]] = true
		}
	}
	for line := range strings.Lines(whole("a", "H100", "alice", "timeout")) {
		if m := helpLine.FindStringSubmatch(strings.TrimSuffix(line, "\n")); m != nil {
			require.False(t, old[m[1]], m[1])
		}
	}
}

// TestLabelsOfNoProcess: each new process would be a new series.
func TestLabelsOfNoProcess(t *testing.T) {
	require.NotRegexp(t, `[{,](pid|eid|command|environment)=`, whole("a", "H100", "alice", "timeout"))
}

func FuzzFleet(f *testing.F) {
	f.Add("gpu-1", "NVIDIA H100", "alice", "timeout")
	for _, name := range names {
		f.Add(name, name, name, name)
	}
	f.Add("\xff\x00", "\x00\"", "\xf0\x9d", "\\")
	f.Fuzz(func(t *testing.T, host, model, user, class string) {
		values(t, whole(host, model, user, class))
	})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLeader(t *testing.T) {
	since := fmt.Sprint(" ", noon.Unix(), "\n")
	answered, leads := "leader_etcd_answered_timestamp_seconds"+since, "leader 1\nleader_since_timestamp_seconds"+since+"leader_etcd_up 1\n"
	for name, row := range map[string]struct {
		election *election.StatusDocument
		want     string
	}{
		"no election":          {nil, ""},
		"it leads":             {&election.StatusDocument{Role: election.Leading, Since: noon, Epoch: 12}, leads + "leader_epoch 12\n"},
		"it writes its memory": {&election.StatusDocument{Role: election.Leading, Since: noon, Epoch: 12, Answered: noon, Memory: noon}, leads + answered + "leader_epoch 12\nleader_memory_timestamp_seconds" + since},
		"a former leader":      {&election.StatusDocument{Role: election.Expired, Since: noon, Epoch: 12, Error: "no answer", Answered: noon, Memory: noon}, "leader 0\nleader_since_timestamp_seconds" + since + "leader_etcd_up 0\n" + answered},
		"a standby":            {&election.StatusDocument{Role: election.Standby, Since: noon, Leader: "ann"}, "leader 0\nleader_since_timestamp_seconds" + since + "leader_etcd_up 1\n"},
		"without etcd":         {&election.StatusDocument{Role: election.Expired, Since: noon, Epoch: 12, Error: "no answer"}, "leader 0\nleader_since_timestamp_seconds" + since + "leader_etcd_up 0\n"},
	} {
		got := ""
		for line := range strings.Lines(samples(metrics.Findings(&live.FleetState{Enforcing: true, Cycle: 1, Election: row.election}))) {
			if strings.HasPrefix(line, "leader") {
				got += line
			}
		}
		require.Equal(t, row.want, got, name)
	}
}

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
		s := proctest.Try(parseSample(strings.TrimSuffix(lines[2], "\n"))).OK(t)
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
		s := proctest.Try(parseSample(strings.TrimSuffix(strings.SplitAfter(text, "\n")[2], "\n"))).OK(t)
		clean := func(s string) string {
			return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
		}
		require.Equal(t, sample{"genv_x", map[string]string{"username": clean(a), "eid": clean(b)}, "1"}, s)
	})
}
