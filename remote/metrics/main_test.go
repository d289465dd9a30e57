package metrics_test

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/remote/election"
	"github.com/seed-3119e985/genv/remote/live"
	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
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
		s, err := parseSample(lines[i])
		require.NoError(t, err)
		require.Contains(t, []string{family, family + "_bucket", family + "_sum", family + "_count"}, s.name)
		value, err := strconv.ParseFloat(s.value, 64)
		require.NoError(t, err, lines[i])
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
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		skip(t, err.Error())
	}
	cmd := exec.Command(promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(whole("gpu-1", "NVIDIA H100", "alice", "timeout"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Empty(t, string(out))
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

// skip skips a test for what this machine lacks; with CI=true that is a failure.
func skip(t *testing.T, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(why)
	}
	t.Skip(why)
}

func TestLeader(t *testing.T) {
	for name, row := range map[string]struct {
		election *election.Shown
		want     map[string]float64
	}{
		"no election": {nil, map[string]float64{}},
		"it leads": {&election.Shown{Role: election.Leading, Since: noon, Epoch: 12}, map[string]float64{
			"genv_leader": 1, "genv_leader_epoch": 12, "genv_leader_since_timestamp_seconds": float64(noon.Unix()), "genv_leader_etcd_up": 1,
		}},
		"it writes its memory": {&election.Shown{Role: election.Leading, Since: noon, Epoch: 12, Answered: noon, Memory: noon}, map[string]float64{
			"genv_leader": 1, "genv_leader_epoch": 12, "genv_leader_since_timestamp_seconds": float64(noon.Unix()), "genv_leader_etcd_up": 1,
			"genv_leader_etcd_answered_timestamp_seconds": float64(noon.Unix()), "genv_leader_memory_timestamp_seconds": float64(noon.Unix()),
		}},
		"a former leader": {&election.Shown{Role: election.Expired, Since: noon, Epoch: 12, Error: "no answer", Answered: noon, Memory: noon}, map[string]float64{
			"genv_leader": 0, "genv_leader_since_timestamp_seconds": float64(noon.Unix()), "genv_leader_etcd_up": 0,
			"genv_leader_etcd_answered_timestamp_seconds": float64(noon.Unix()),
		}},
		"a standby": {&election.Shown{Role: election.Standby, Since: noon, Leader: "ann"}, map[string]float64{
			"genv_leader": 0, "genv_leader_since_timestamp_seconds": float64(noon.Unix()), "genv_leader_etcd_up": 1,
		}},
		"without etcd": {&election.Shown{Role: election.Expired, Since: noon, Epoch: 12, Error: "no answer"}, map[string]float64{
			"genv_leader": 0, "genv_leader_since_timestamp_seconds": float64(noon.Unix()), "genv_leader_etcd_up": 0,
		}},
	} {
		all := values(t, string(metrics.Findings(&live.FleetState{Enforcing: true, Cycle: 1, Election: row.election})))
		got := map[string]float64{}
		for series, value := range all {
			if strings.HasPrefix(series, "genv_leader") {
				got[series] = value
			}
		}
		require.Equal(t, row.want, got, name)
	}
}
