package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/container"
)

// dockersFiles are those of containers; the id of each one is its first process.
func dockersFiles(b *testing.B, inits []int) (root string) {
	root = b.TempDir()
	require.NoError(b, os.Chmod(root, 0o755))
	for _, init := range inits {
		id := fmt.Sprintf("%064x", init)
		dir := filepath.Join(root, "var/lib/docker/containers", id)
		require.NoError(b, os.MkdirAll(dir, 0o755))
		text := fmt.Sprintf(`{"ID":%q,"Name":"/job","State":{"Running":true,"Pid":%d}}`, id, init)
		require.NoError(b, os.WriteFile(filepath.Join(dir, "config.v2.json"), []byte(text), 0o600))
	}
	return root
}

// BenchmarkContainers compares snapshots of 100 processes, each the second one in a container
// of its own, with snapshots of 100 processes outside containers, in turns in one run: ratio
// and more-µs are medians. "known" is a host where nothing has changed since the last
// snapshot; "renewed" one where all that is known about processes is as old as is allowed,
// as once in a minute.
func BenchmarkContainers(b *testing.B) {
	const count = 100
	host := func(contained, executed bool) (*machine, *time.Time) {
		m, now := newMachine(b), time.Now()
		m.Now = func() time.Time { return now }
		m.DeviceListTTL = 24 * time.Hour
		var inits []int
		for i := range count {
			inits = append(inits, 1000+i)
		}
		m.Containers = &container.Source{
			Engines: container.Engines{Root: dockersFiles(b, inits)}, Run: b.TempDir(), Proc: m.Proc, Wait: time.Minute,
		}
		for i, init := range inits {
			pid, group := 5000+i, "/user.slice"
			if contained {
				group = fmt.Sprintf("/docker/%064x", init)
			}
			for _, p := range []int{init, pid} {
				m.process(p, 0, 20, "HOME=/\x00")
				m.write(fmt.Sprint(p, "/cgroup"), "0::"+group+"\n")
				if contained {
					m.write(fmt.Sprint(p, "/status"), fmt.Sprintf("Name:\tpython3\nUid:\t0\t0\t0\t0\nNSpid:\t%d\t1\n", p))
				}
			}
			if !executed {
				m.write(fmt.Sprint(pid, "/stat"), statOf(pid, init, "python3", "S", 20, 1020))
			}
			m.smi.apps += fmt.Sprintf("GPU-0, %d, 1\n", pid)
		}
		return m, &now
	}
	for name, age := range map[string]time.Duration{"known": 0, "often": 5 * time.Second, "renewed": time.Minute, "executed": time.Minute} {
		b.Run(name, func(b *testing.B) {
			outside, outsideNow := host(false, name == "executed")
			inside, insideNow := host(true, name == "executed")
			took := func(m *machine, now *time.Time) time.Duration {
				*now = now.Add(age)
				begun := time.Now()
				s, err := m.Snapshot(b.Context())
				took := time.Since(begun)
				require.NoError(b, err)
				require.Len(b, s.Processes, count)
				require.Equal(b, m == inside, s.Processes[0].ContainerInfo != nil && strings.HasPrefix(s.Processes[0].ContainerInfo.Name, "job"))
				return took
			}
			took(outside, outsideNow)
			took(inside, insideNow)
			var more, ratio []float64
			for b.Loop() {
				without, with := took(outside, outsideNow), took(inside, insideNow)
				more, ratio = append(more, float64(with-without)/1e3), append(ratio, float64(with)/float64(without))
			}
			slices.Sort(more)
			slices.Sort(ratio)
			b.ReportMetric(more[len(more)/2], "more-µs")
			b.ReportMetric(ratio[len(ratio)/2], "ratio")
		})
	}
}
