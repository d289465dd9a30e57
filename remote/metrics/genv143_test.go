package metrics_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote/metrics"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

func uid(n int) *snapshot.UID { return new(snapshot.UID(n)) }

func use(index snapshot.DeviceIndex, mib int64) snapshot.DeviceUsage {
	return snapshot.DeviceUsage{Index: index, Memory: snapshot.MiB(mib)}
}

func attached(eids ...snapshot.EnvID) (list []snapshot.Attachment) {
	for _, eid := range eids {
		list = append(list, snapshot.Attachment{EID: eid})
	}
	return list
}

// busy is a host as in a run of 1.4.3: alice has two environments on one device, bob has
// one without a device, and a process claims an environment that is not registered.
func busy() *snapshot.Snapshot {
	return &snapshot.Snapshot{
		Devices: []snapshot.Device{
			{Index: 0, TotalMemory: snapshot.MiB(81559), UsedMemory: snapshot.MiB(1000), Utilization: new(97), Temperature: new(63), Attachments: attached("E1", "E2")},
			{Index: 1, TotalMemory: snapshot.MiB(81559), UsedMemory: snapshot.MiB(1500), Utilization: new(0), Temperature: new(0)},
		},
		Environments: []snapshot.Environment{{EID: "E1", UID: 1000, Username: "alice"}, {EID: "E2", UID: 1000, Username: "alice"}, {EID: "E3", UID: 1001, Username: "bob"}},
		Processes: []snapshot.Process{
			{PID: 70, EID: "E1", UID: uid(1000), Usage: []snapshot.DeviceUsage{use(0, 1000), use(1, 1000)}},
			{PID: 71, EID: "bogus", UID: uid(1001), Usage: []snapshot.DeviceUsage{use(1, 500)}},
		},
	}
}

// samples are the lines without help and types.
func samples(text []byte) string {
	var b strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(strings.TrimPrefix(line, "genv_"))
		}
	}
	return b.String()
}

func of(hosts ...metrics.Scraped) string { return samples(metrics.Genv143(hosts)) }

// TestNamesOf143: what 1.4.3 was seen to export of this state, but for the process that
// claims an environment which doesn't exist: it is outside.
func TestNamesOf143(t *testing.T) {
	require.Equal(t, `is_installed 1
device_utilization{index="0"} 97
device_utilization{index="1"} 0
device_temperature{index="0"} 63
device_temperature{index="1"} 0
device_memory_used_bytes{index="0"} 1048576000
device_memory_used_bytes{index="1"} 1572864000
device_memory_total_bytes{index="0"} 85520809984
device_memory_total_bytes{index="1"} 85520809984
environments_total 3
processes_total 2
attached_devices_total 1
users_total 2
environment_processes_total{eid="E1"} 1
environment_processes_total{eid="E2"} 0
environment_processes_total{eid="E3"} 0
environment_attached_devices_total{eid="E1"} 1
environment_attached_devices_total{eid="E2"} 1
environment_attached_devices_total{eid="E3"} 0
process_devices_total{pid="70",eid="E1"} 2
process_devices_total{pid="71",eid=""} 1
process_used_gpu_memory_bytes{pid="70",eid="E1",device="0"} 1048576000
process_used_gpu_memory_bytes{pid="70",eid="E1",device="1"} 1048576000
process_used_gpu_memory_bytes{pid="71",eid="",device="1"} 524288000
user_environments_total{username="alice"} 2
user_environments_total{username="bob"} 1
user_processes_total{username="alice"} 1
user_processes_total{username="bob"} 0
user_attached_devices_total{username="alice"} 1
user_attached_devices_total{username="bob"} 0
`, of(metrics.Scraped{Installed: true, Snapshot: busy()}))
}

// TestADeviceWithMIG: what the driver doesn't measure is no series.
func TestADeviceWithMIG(t *testing.T) {
	text := of(metrics.Scraped{Installed: true, Snapshot: divided()})
	require.NotContains(t, text, "device_utilization")
	require.NotContains(t, text, "process_used_gpu_memory_bytes")
	require.Contains(t, text, "device_memory_used_bytes{index=\"0\"} 91226112\n")
	require.Contains(t, text, "processes_total 1\n")
}

func TestEachFamilyHasItsHelpAndType(t *testing.T) {
	text := string(metrics.Genv143(nil))
	require.Equal(t, 17, strings.Count(text, "# HELP genv_"))
	require.Equal(t, 17, strings.Count(text, " gauge\n"))
	require.Empty(t, samples([]byte(text)), "of no host nothing is known")
}

// TestContainersAreNamed: in a series of their own, so that the names of 1.4.3 keep their labels.
func TestContainersAreNamed(t *testing.T) {
	id := strings.Repeat("4c01db0b339c0a1f", 4)
	in := func(pid snapshot.PID, container string, info *snapshot.ContainerInfo) snapshot.Process {
		return snapshot.Process{PID: pid, UID: uid(0), Container: container, ContainerInfo: info, EnvUnknown: pid%2 == 0}
	}
	text := of(metrics.Scraped{Name: "a", Installed: true, Snapshot: &snapshot.Snapshot{Processes: []snapshot.Process{
		in(1, "", nil),
		in(2, id, nil),
		in(3, id, &snapshot.ContainerInfo{Unknown: true}),
		in(4, id, &snapshot.ContainerInfo{Name: "web", Image: "pytorch:24.10", UID: uid(1002), User: "bob", Proof: snapshot.ProofRecord}),
		in(5, id, &snapshot.ContainerInfo{Name: "a\"b", UID: uid(1003), Proof: snapshot.ProofRecord}),
		in(6, "web", &snapshot.ContainerInfo{Name: strings.Repeat("x", 5000)}),
	}}})
	_, text, _ = strings.Cut(text, "process_container_info")
	text, _, _ = strings.Cut("process_container_info"+text, "user_")
	named, cut, _ := strings.Cut(text, `process_container_info{hostname="a",pid="6"`)
	require.Equal(t, `process_container_info{hostname="a",pid="2",container="4c01db0b339c",image="",started_by=""} 1
process_container_info{hostname="a",pid="3",container="4c01db0b339c",image="",started_by=""} 1
process_container_info{hostname="a",pid="4",container="web",image="pytorch:24.10",started_by="bob"} 1
process_container_info{hostname="a",pid="5",container="a\"b",image="",started_by="uid 1003"} 1
`, named)
	require.NotEmpty(t, cut)
	require.Less(t, len(cut), 1000, "names have a maximum length")
}

func TestHostsOfAFleet(t *testing.T) {
	text := of(
		metrics.Scraped{Name: "gpu-1", Installed: true, Snapshot: busy()},
		metrics.Scraped{Name: `gpu"2`, Snapshot: busy()},
		metrics.Scraped{Name: "gpu-3", Installed: true, Snapshot: &snapshot.Snapshot{}},
	)
	require.Contains(t, text, "is_installed{hostname=\"gpu-1\"} 1\nis_installed{hostname=\"gpu\\\"2\"} 0\nis_installed{hostname=\"gpu-3\"} 1\n")
	require.Contains(t, text, `process_used_gpu_memory_bytes{hostname="gpu-1",pid="70",eid="E1",device="1"} 1048576000`)
	require.Contains(t, text, `users_total{hostname="gpu-3"} 0`)
	for line := range strings.Lines(text) {
		if strings.Contains(line, "2") && strings.Contains(line, `gpu\"2`) {
			require.Regexp(t, `^(is_installed|device_)`, line, "of a host without genv only the devices are known")
		}
	}
}

func TestUnknownIsAbsent(t *testing.T) {
	require.Equal(t, "is_installed 1\n", of(metrics.Scraped{Installed: true}), "nothing else is known")

	s := busy()
	s.Devices = []snapshot.Device{{Index: 5}}
	s.Processes = []snapshot.Process{{PID: 70, EID: "E1", UID: uid(1000), Usage: []snapshot.DeviceUsage{{Index: 5}}}}
	text := of(metrics.Scraped{Installed: true, Snapshot: s})
	require.NotContains(t, text, `index="5"`)
	require.NotContains(t, text, "process_used_gpu_memory_bytes")
	require.Contains(t, text, `process_devices_total{pid="70",eid="E1"} 1`)
	require.Contains(t, text, "attached_devices_total 0")
}

// TestProcessesInUnknownEnvironments: they may belong to each environment of their user,
// and root's to each one, so how many processes these have is not known.
func TestProcessesInUnknownEnvironments(t *testing.T) {
	for name, row := range map[string]struct {
		owner *snapshot.UID
		known []string // environments, and users
	}{
		"alice's":    {uid(1000), []string{`eid="E3"`, `username="bob"`}},
		"bob's":      {uid(1001), []string{`eid="E1"`, `eid="E2"`, `username="alice"`}},
		"a stranger": {uid(1002), []string{`eid="E1"`, `eid="E2"`, `eid="E3"`, `username="alice"`, `username="bob"`}},
		"root's":     {uid(0), nil},
		"not told":   {nil, nil},
	} {
		s := busy()
		s.Processes = append(s.Processes, snapshot.Process{PID: 99, EnvUnknown: true, UID: row.owner, Usage: []snapshot.DeviceUsage{use(0, 1)}})
		host := metrics.Scraped{Installed: true, Snapshot: s}
		text := of(host)
		var known []string
		for line := range strings.Lines(text) {
			family, rest, _ := strings.Cut(line, "{")
			if family == "environment_processes_total" || family == "user_processes_total" {
				label, _, _ := strings.Cut(rest, "}")
				known = append(known, label)
			}
		}
		require.Equal(t, row.known, known, name)
		require.NotContains(t, text, `pid="99"`, name)
		require.Contains(t, text, "processes_total 3", name)
		require.NotEmpty(t, host.Missing(), name)
	}
}

// TestClaims: what a process says about itself counts only for its own user.
func TestClaims(t *testing.T) {
	for name, row := range map[string]struct {
		process snapshot.Process
		want    string
	}{
		"its user's":              {snapshot.Process{EID: "E1", UID: uid(1000)}, "E1"},
		"root in it":              {snapshot.Process{EID: "E1", UID: uid(0)}, "E1"},
		"a host without uids":     {snapshot.Process{EID: "E1"}, "E1"},
		"bob claims alice's":      {snapshot.Process{EID: "E1", UID: uid(1001)}, ""},
		"one that does not exist": {snapshot.Process{EID: "E9", UID: uid(1000)}, ""},
		"none":                    {snapshot.Process{UID: uid(1000)}, ""},
	} {
		s := busy()
		row.process.PID = 42
		s.Processes = []snapshot.Process{row.process}
		text := of(metrics.Scraped{Installed: true, Snapshot: s})
		require.Contains(t, text, fmt.Sprintf("process_devices_total{pid=\"42\",eid=%q} 0\n", row.want), name)
		count := "0"
		if row.want == "E1" {
			count = "1"
		}
		require.Contains(t, text, `environment_processes_total{eid="E1"} `+count, name)
	}
}

func TestAUserWithoutAName(t *testing.T) {
	s := &snapshot.Snapshot{Environments: []snapshot.Environment{{EID: "E1", UID: 4711}}}
	text := of(metrics.Scraped{Installed: true, Snapshot: s})
	require.Contains(t, text, "users_total 1\n")
	require.Contains(t, text, `user_environments_total{username="uid 4711"} 1`)
}

// TestPromtool: the real promtool reads the text. Of 1.4.3's names it complains that
// those of gauges end in _total, which counters' names should.
func TestPromtool(t *testing.T) {
	s := busy()
	for i, name := range names {
		s.Environments = append(s.Environments, snapshot.Environment{EID: snapshot.EnvID(fmt.Sprintf("%d%s", i, name)), UID: 1002, Username: snapshot.Username(fmt.Sprintf("%d%s", i, name))})
	}
	complaints, _ := promtool(t, string(metrics.Genv143([]metrics.Scraped{{Name: "gpu\xff-1", Installed: true, Snapshot: s}}))) // it exits with 3
	for line := range strings.Lines(complaints) {
		require.Regexp(t, `^genv_\w+_total non-counter metrics should not have "_total" suffix\n$`, line)
	}
	require.Equal(t, 10, strings.Count(complaints, "\n"), complaints)
}

// promtool is what the real program says of a text. Without it the test is skipped, or with CI=true fails.
func promtool(t *testing.T, text string) (complaints string, err error) {
	t.Helper()
	proctest.NeedPrograms(t, "promtool")
	cmd := exec.Command("promtool", "check", "metrics")
	cmd.Stdin = strings.NewReader(text)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
