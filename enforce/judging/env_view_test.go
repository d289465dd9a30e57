package judging_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/enforce/judging"
	"github.com/seed-3119e985/genv/snapshot"
)

func uid(n snapshot.UID) *snapshot.UID { return &n }

// processOf is one on device 0. Who started it is "user" (without a container), "proved" or
// "unproved" (in one of root's runtime), or "old" (in one, on a host that says only its id).
func processOf(pid snapshot.PID, started string, mib int64) *snapshot.Process {
	p := &snapshot.Process{PID: pid, UID: uid(1001), Usage: []snapshot.DeviceUsage{{Index: 0}}}
	if mib >= 0 {
		p.Usage[0].Memory = snapshot.MiB(mib)
	}
	switch started {
	case "proved":
		p.UID, p.Container = uid(0), "web"
		p.ContainerInfo = &snapshot.ContainerInfo{UID: uid(1001), Proof: snapshot.ProofRecord}
	case "unproved":
		p.Container, p.ContainerInfo = "web", &snapshot.ContainerInfo{}
	case "old":
		p.UID, p.Container = uid(0), "web"
	}
	return p
}

func TestUseBy(t *testing.T) {
	inContainer := func(own snapshot.UID, by *snapshot.UID) snapshot.Process {
		return snapshot.Process{UID: uid(own), Container: "web", ContainerInfo: &snapshot.ContainerInfo{UID: by, Proof: snapshot.ProofRecord}}
	}
	for name, row := range map[string]struct {
		process snapshot.Process
		want    judging.Certainty
	}{
		"the user's":                            {snapshot.Process{UID: uid(1001)}, judging.Proven},
		"root's":                                {snapshot.Process{UID: uid(0)}, judging.Reported},
		"of a host that reports no uids":        {snapshot.Process{}, judging.Reported},
		"another user's":                        {snapshot.Process{UID: uid(1002)}, judging.Unused},
		"a container that the user started":     {inContainer(0, uid(1001)), judging.Proven},
		"that another user started":             {inContainer(0, uid(1002)), judging.Unused},
		"that another user started as the user": {inContainer(1001, uid(1002)), judging.Unused},
		"of no proved user, as the user":        {*processOf(1, "unproved", 1), judging.Reported},
		"on a host that says only its id":       {*processOf(1, "old", 1), judging.Reported},
	} {
		require.Equal(t, row.want, judging.UseBy(1001, &row.process), name)
	}
}

func TestRelieve(t *testing.T) {
	for _, row := range []struct {
		name      string
		processes string // PID STARTED MIB, separated by commas; MIB -1 is unknown
		capacity  int64  // in MiB
		pending   snapshot.PID
		want      string
	}{
		{"within the capacity", "1 user 10, 2 user 20", 30, 0, ""},
		{"the smallest that is enough", "1 user 10, 2 user 20, 3 user 30", 45, 0, "2"},
		{"of equal ones the younger", "1 user 10, 2 user 10", 15, 0, "2"},
		{"the largest while none is enough", "1 user 10, 2 user 20, 3 user 30", 15, 0, "3 2"},
		{"what ends anyway counts as freed", "1 user 10, 2 user 20", 15, 2, "2"},
		{"within the capacity there is nothing to free", "1 user 10, 2 user 20", 30, 1, ""},
		{"nor for a container within it", "1 user 20, 2 unproved 10", 25, 1, "2"},
		{"an unknown amount never ends", "1 user 10, 2 user -1", 5, 0, "1"},
		{"a container of the user is the user's", "1 user 10, 2 proved 20", 25, 0, "1"},
		{"a container of no proved user first", "1 user 20, 2 unproved 10", 25, 0, "2"},
		{"also if it is not enough alone", "1 user 20, 2 unproved 1", 10, 0, "2 1"},
		{"alone it costs the user nothing", "1 user 20, 2 unproved 9000", 20, 0, "2"},
		{"several of them", "1 user 20, 2 unproved 10, 3 unproved 30", 25, 0, "3 2"},
		{"on a host that says only its id too", "1 user 20, 2 old 10", 25, 0, "2"},
		{"within the capacity it stays", "1 user 20, 2 unproved 10", 30, 0, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			var c judging.EnvView
			for text := range strings.SplitSeq(row.processes, ", ") {
				var pid snapshot.PID
				var started string
				var mib int64
				_, err := fmt.Sscan(text, &pid, &started, &mib)
				require.NoError(t, err)
				c.Processes = append(c.Processes, processOf(pid, started, mib))
			}
			var ended []string
			proved, unproved := c.Relieve(0, row.capacity<<20, func(p *snapshot.Process) bool { return p.PID == row.pending })
			for _, p := range slices.Concat(unproved.Ending, proved.Ending) {
				ended = append(ended, fmt.Sprint(p.PID))
			}
			require.Equal(t, row.want, strings.Join(ended, " "))
		})
	}
}

func TestUsed(t *testing.T) {
	var c judging.EnvView
	for i, mib := range []int64{3, -1, 4} {
		c.Processes = append(c.Processes, processOf(snapshot.PID(i+1), "user", mib))
	}
	used, unknown := c.Used(0)
	require.EqualValues(t, 7<<20, used)
	require.Equal(t, 1, unknown)
	used, unknown = c.Used(1)
	require.Zero(t, used)
	require.Zero(t, unknown)
}
