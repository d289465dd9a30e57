package local_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

func TestStateFolder(t *testing.T) {
	machine, store := realMachine(t)
	machine.SMI = listed{}
	s, err := machine.Snapshot(t.Context())
	require.NoError(t, err)
	folder, err := store.FolderID()
	require.NoError(t, err)
	require.Equal(t, folder, s.StateFolder)
	require.Regexp(t, `^\d+:\d+/\d+$`, folder)

	other, _ := realMachine(t)
	other.SMI = listed{}
	s, err = other.Snapshot(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, folder, s.StateFolder)
}

// jobs is an engine; the id of each container is its first process.
type jobs struct{}

func (jobs) Stop(context.Context, proc.Cgroup, time.Duration) error {
	return container.ErrNoEngine
}

func (jobs) Inspect(_ context.Context, place proc.Cgroup) (container.Details, error) {
	init, err := strconv.ParseInt(place.ID, 16, 32)
	return container.Details{Name: "job", Init: snapshot.PID(init)}, err
}

// BenchmarkContainers compares snapshots of 100 processes, each the second one in a container of its own, with
// snapshots of 100 processes outside containers, in turns in one run: ratio and more-µs are medians. "known" is a host
// where nothing has changed since the last snapshot; "renewed" one where all that is known about processes is as old
// as is allowed, as once in a minute.
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
		m.Containers = (&container.Lookup{Engines: jobs{}, Run: b.TempDir(), Proc: m.Proc, Wait: time.Minute}).Look
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

// containers says the same of every member, and counts the questions.
type containers struct {
	info  *snapshot.ContainerInfo
	asked int
}

func (c *containers) Look(_ context.Context, members []container.ContainedProcess) []*snapshot.ContainerInfo {
	c.asked += len(members)
	infos := make([]*snapshot.ContainerInfo, len(members))
	for i := range infos {
		infos[i] = c.info
	}
	return infos
}

// TestContainersAreAskedForOnce: a snapshot without new processes asks nothing.
func TestContainersAreAskedForOnce(t *testing.T) {
	m := newMachine(t)
	known := &containers{info: &snapshot.ContainerInfo{Name: "web", EID: "7"}}
	m.Containers = known.Look
	m.process(20, 0, 20, "HOME=/\x00")
	m.process(30, 0, 30, "GENV_ENVIRONMENT_ID=8\x00")
	m.process(40, 0, 40, "HOME=/\x00")
	for _, pid := range []string{"20", "30"} {
		m.write(pid+"/cgroup", "0::/docker/"+strings.Repeat("0", 64)+"\n")
	}
	m.smi.apps = "GPU-0, 20, 1\nGPU-0, 30, 1\nGPU-0, 40, 1\n"
	for range 3 {
		s := m.snapshot()
		require.Len(t, s.Processes, 3)
		require.Equal(t, known.info, s.Processes[0].ContainerInfo)
		require.Equal(t, snapshot.EnvID("7"), s.Processes[0].EID, "the one in which the container was started")
		require.Equal(t, snapshot.EnvID("8"), s.Processes[1].EID, "its own claim counts before that")
		require.Nil(t, s.Processes[2].ContainerInfo)
		require.Equal(t, 2, known.asked)
	}
	known.info = &snapshot.ContainerInfo{Unknown: true}
	m.process(50, 0, 50, "HOME=/\x00")
	m.write("50/cgroup", "0::/docker/"+strings.Repeat("1", 64)+"\n")
	m.smi.apps += "GPU-0, 50, 1\n"
	m.snapshot()
	m.snapshot()
	require.Equal(t, 4, known.asked, "what is unknown is asked for again")
}

// TestDetailsOfContainersExpireOneAfterTheOther: those of all within a minute, and of few in one snapshot.
func TestDetailsOfContainersExpireOneAfterTheOther(t *testing.T) {
	m, now := newMachine(t), time.Now()
	m.Now = func() time.Time { return now }
	known := &containers{info: &snapshot.ContainerInfo{Name: "web"}}
	m.Containers = known.Look
	const count = 40
	for pid := 100; pid < 100+count; pid++ {
		m.process(pid, 0, 20, "HOME=/\x00")
		m.write(fmt.Sprint(pid, "/cgroup"), fmt.Sprintf("0::/docker/%064x\n", pid))
		m.smi.apps += fmt.Sprintf("GPU-0, %d, 1\n", pid)
	}
	m.snapshot()
	require.Equal(t, count, known.asked)
	known.info = &snapshot.ContainerInfo{Name: "renamed"}
	for range 30 {
		now = now.Add(2 * time.Second)
		before := known.asked
		m.snapshot()
		require.LessOrEqual(t, known.asked-before, count/8)
	}
	s := m.snapshot()
	for i := range s.Processes {
		require.Equal(t, known.info, s.Processes[i].ContainerInfo)
	}
}
