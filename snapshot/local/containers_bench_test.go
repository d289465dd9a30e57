package local_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/container/cgroup"
	"github.com/seed-3119e985/genv/snapshot/container/engine"
)

// answers is an engine that knows each container by its id, which is its first process.
type answers struct{}

func (answers) Inspect(_ context.Context, place cgroup.Place) (engine.Details, error) {
	var pid snapshot.PID
	_, err := fmt.Sscanf(place.ID, "%x", &pid)
	return engine.Details{Name: "job", Init: pid}, err
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
		m.Containers = &container.Source{Engines: answers{}, Run: b.TempDir(), Proc: m.Proc}
		for i := range count {
			init, pid, group := 1000+i, 5000+i, "/user.slice"
			if contained {
				group = fmt.Sprintf("/docker/%064x", init)
			}
			for _, p := range []int{init, pid} {
				m.process(p, 0, 20, "HOME=/\x00")
				m.write(fmt.Sprint(p, "/cgroup"), "0::"+group+"\n")
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
