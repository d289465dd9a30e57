package snapshot_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// processesOf are processes of an account on a GPU, the oldest first.
func processesOf(uid *snapshot.UID, from, count int, gpu snapshot.DeviceIndex) (list []snapshot.Process) {
	for i := range count {
		list = append(list, snapshot.Process{
			PID: snapshot.PID(from + i), Start: snapshot.StartTime(from + i), UID: uid, Usage: []snapshot.DeviceUsage{{Index: gpu}},
		})
	}
	return list
}

// countByUID is how many processes each account has; -1 is one that isn't known.
func countByUID(s *snapshot.Snapshot) map[int]int {
	count := map[int]int{}
	for i := range s.Processes {
		uid := -1
		if p := &s.Processes[i]; p.UID != nil {
			uid = int(*p.UID)
		}
		count[uid]++
	}
	return count
}

// TestBoundLeavesTheProcessesOfOthers: of an account that has too many, or of those that have most, the newest are cut.
func TestBoundLeavesTheProcessesOfOthers(t *testing.T) {
	alice, mallory := snapshot.UID(1), snapshot.UID(3)
	s := &snapshot.Snapshot{Processes: processesOf(&mallory, 1000, 9000, 7)}
	s.Processes = append(s.Processes, processesOf(&alice, 50000, 512, 1)...)
	s.Processes = append(s.Processes, processesOf(nil, 60000, 600, 2)...)
	s.Bound()
	require.Equal(t, map[int]int{1: 512, 3: 512, -1: 600}, countByUID(s))
	require.Equal(t, snapshot.PID(1000), s.Processes[0].PID)
	require.Equal(t, snapshot.PID(1511), s.Processes[511].PID, "the oldest are kept")
	require.Equal(t, []snapshot.More{{UID: &mallory, Processes: 9000 - 512, GPUs: []snapshot.DeviceIndex{7}}}, s.More)
	require.Len(t, s.Warnings, 1)
	require.Contains(t, s.Warnings[0], "uid 3 has more processes")

	encoded := proctest.Try(snapshot.EncodeNative(s)).OK(t)
	read := proctest.Try(snapshot.DecodeNative(encoded)).OK(t)
	read.Bound()
	require.Equal(t, s.More, read.More, "it is cut once")
	require.Len(t, read.Warnings, 1)

	s = &snapshot.Snapshot{Processes: processesOf(&alice, 100, 100, 0)}
	for i := range 40 {
		s.Processes = append(s.Processes, processesOf(new(snapshot.UID(2000+i)), 1000*(i+1), 500, 1)...)
	}
	s.Bound()
	require.LessOrEqual(t, len(s.Processes), snapshot.MaxProcesses)
	require.Equal(t, 100, countByUID(s)[1])
	require.Equal(t, 202, countByUID(s)[2000], "(8192 - 100) / 40")
	require.Len(t, s.More, 40)
}

// TestBoundOfEnvironments: those of others stay, with what is attached to them. A process of one that was cut is in an
// unknown environment.
func TestBoundOfEnvironments(t *testing.T) {
	at := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for name, perEnvironment := range map[string]int{"many environments": 1, "many attachments": 8} {
		t.Run(name, func(t *testing.T) {
			alice, mallory := snapshot.UID(1), snapshot.UID(3)
			s := &snapshot.Snapshot{Devices: make([]snapshot.Device, 8)}
			add := func(eid string, uid snapshot.UID, age int) {
				e := snapshot.Environment{EID: snapshot.EnvID(eid), UID: uid, Creation: snapshot.DateOf(at.Add(time.Duration(-age) * time.Second))}
				s.Environments = append(s.Environments, e)
				for i := range perEnvironment {
					s.Devices[i].Attachments = append(s.Devices[i].Attachments, snapshot.Attachment{EID: e.EID})
				}
			}
			for i := range 5000 {
				add(fmt.Sprintf("m%d", i), mallory, 5000-i)
			}
			add("a", alice, 0)
			for i := range s.Devices {
				s.Devices[i].Index = snapshot.DeviceIndex(i)
			}
			for i, eid := range []snapshot.EnvID{"a", "m0", "m4999"} {
				p := processesOf(&mallory, 100+i, 1, 0)
				p[0].EID = eid
				s.Processes = append(s.Processes, p...)
			}
			s.Bound()
			require.LessOrEqual(t, len(s.Environments), snapshot.MaxEnvironments)
			require.Equal(t, snapshot.EnvID("m0"), s.Environments[0].EID)
			require.Equal(t, snapshot.EnvID("a"), s.Environments[len(s.Environments)-1].EID)
			require.Len(t, s.Devices[0].Attachments, len(s.Environments))
			require.Len(t, s.More, 1)
			require.Equal(t, 5001-len(s.Environments), s.More[0].Environments)
			require.Len(t, s.More[0].GPUs, perEnvironment)
			require.Equal(t, []bool{false, false, true}, []bool{s.Processes[0].EnvUnknown, s.Processes[1].EnvUnknown, s.Processes[2].EnvUnknown})
			require.Empty(t, s.Processes[2].EID)
		})
	}
}
