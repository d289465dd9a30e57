package local_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container"
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
