package gpus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/gpus"
)

func TestStates(t *testing.T) {
	zero, some := 0, 40
	attached := []snapshot.Attachment{{EID: "7"}}
	used := []snapshot.Process{{PID: 9, Usage: []snapshot.DeviceUsage{{Index: 0}}}}
	drawn := []snapshot.Process{{PID: 9, Usage: []snapshot.DeviceUsage{{Index: 0, Type: snapshot.TypeComputeGraphics}}}}
	for name, row := range map[string]struct {
		device    snapshot.Device
		processes []snapshot.Process
		want      gpus.State
	}{
		"nothing":                            {want: gpus.Free},
		"what a driver uses":                 {device: snapshot.Device{UsedMemory: snapshot.MiB(600)}, want: gpus.Free},
		"memory of no visible process":       {device: snapshot.Device{UsedMemory: snapshot.MiB(1024)}, want: gpus.Unknown},
		"that memory, attached":              {device: snapshot.Device{UsedMemory: snapshot.MiB(1024), Attachments: attached}, want: gpus.Unknown},
		"in an error state":                  {device: snapshot.Device{UUID: "GPU-0", TotalMemory: snapshot.MiB(80)}, want: gpus.Unknown},
		"the same, attached":                 {device: snapshot.Device{UUID: "GPU-0", Attachments: attached}, want: gpus.Unknown},
		"the same, used":                     {device: snapshot.Device{UUID: "GPU-0"}, processes: used, want: gpus.Busy},
		"of which no processes are reported": {device: snapshot.Device{ProcessesUnknown: true}, want: gpus.Unknown},
		"the same, attached and unreported":  {device: snapshot.Device{ProcessesUnknown: true, Attachments: attached}, want: gpus.Unknown},
		"of which one process is reported":   {device: snapshot.Device{ProcessesUnknown: true}, processes: used, want: gpus.Busy},
		"of unified memory":                  {device: snapshot.Device{UUID: "GPU-0", Temperature: &some}, want: gpus.Free},
		"attached":                           {device: snapshot.Device{Attachments: attached}, want: gpus.Attached},
		"computing without a process":        {device: snapshot.Device{Attachments: attached, Utilization: &some}, want: gpus.Attached},
		"a desktop's":                        {device: snapshot.Device{Display: true, Utilization: &some, UsedMemory: snapshot.MiB(1024)}, processes: drawn, want: gpus.Free},
		"drawn on without a screen":          {processes: drawn, want: gpus.Busy},
		"used, unknown utilization":          {processes: used, want: gpus.Busy},
		"used and computing":                 {device: snapshot.Device{Utilization: &some}, processes: used, want: gpus.Busy},
		"held, not computing":                {device: snapshot.Device{Utilization: &zero}, processes: used, want: gpus.Idle},
		"held and attached, no computing":    {device: snapshot.Device{Utilization: &zero, Attachments: attached}, processes: used, want: gpus.Idle},
	} {
		t.Run(name, func(t *testing.T) {
			list := gpus.Of(&snapshot.Snapshot{Devices: []snapshot.Device{row.device}, Processes: row.processes})
			require.Len(t, list, 1)
			require.Equal(t, row.want, list[0].State)
		})
	}
}

// TestInstances: a process is on the device of its MIG instances, which are named there.
func TestInstances(t *testing.T) {
	s := &snapshot.Snapshot{
		Devices: []snapshot.Device{
			{Index: 0, UUID: "GPU-0", UsedMemory: snapshot.MiB(87), Instances: []snapshot.Instance{{UUID: "MIG-a", Profile: "1g.10gb"}, {UUID: "MIG-b"}}},
			{Index: 1, UUID: "GPU-1", UsedMemory: snapshot.MiB(3), Instances: []snapshot.Instance{{UUID: "MIG-c"}}},
		},
		Processes: []snapshot.Process{{PID: 9, Instances: []snapshot.GPUUUID{"MIG-b", "MIG-c"}, Usage: []snapshot.DeviceUsage{{Index: 0}, {Index: 1}}}},
	}
	list := gpus.Of(s)
	require.Equal(t, gpus.Busy, list[0].State, "an unknown utilization is not idle")
	require.Equal(t, []gpus.Instance{{UUID: "MIG-a", Profile: "1g.10gb"}, {UUID: "MIG-b"}}, list[0].Instances)
	require.Equal(t, []snapshot.GPUUUID{"MIG-b"}, list[0].Processes[0].Instances)
	require.Equal(t, []snapshot.GPUUUID{"MIG-c"}, list[1].Processes[0].Instances)
}

// TestADeviceThatTheDriverLost: it is registered, and nvidia-smi lists only the other one.
func TestADeviceThatTheDriverLost(t *testing.T) {
	list := gpus.Of(&snapshot.Snapshot{Devices: []snapshot.Device{{Index: 1}, {Index: 0, UUID: "GPU-0", UsedMemory: snapshot.MiB(3)}}})
	require.Equal(t, []gpus.State{gpus.Free, gpus.Unknown}, []gpus.State{list[0].State, list[1].State})
}

func TestJoin(t *testing.T) {
	east, uid := 2*3600, snapshot.UID(1004)
	since, err := snapshot.ParseDate("20/11/2026 10:00:00")
	require.NoError(t, err)
	s := &snapshot.Snapshot{
		UTCOffset:    &east,
		Environments: []snapshot.Environment{{EID: "7", UID: 1001, Username: "alice", Config: snapshot.EnvConfig{Name: "train"}}, {EID: "8", UID: 1004}},
		Devices: []snapshot.Device{
			{Index: 0, TotalMemory: snapshot.MiB(100), Attachments: []snapshot.Attachment{{EID: "8"}, {EID: "7", Time: since, GPUMemory: snapshot.MiB(3)}, {EID: "gone"}}},
			{Index: 1},
		},
		Processes: []snapshot.Process{
			{PID: 9, UID: &uid, Name: "python", Container: "c1", Usage: []snapshot.DeviceUsage{{Index: 0, Memory: snapshot.MiB(2)}, {Index: 1}, {Index: 5}}},
		},
	}
	list := gpus.Of(s)
	total, used, capacity := int64(100<<20), int64(2<<20), int64(3<<20)
	at := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
	require.Len(t, list, 2)
	require.True(t, list[0].Since().Equal(at))
	require.Equal(t, []snapshot.Username{"alice", "uid 1004"}, list[0].Users())
	require.Equal(t, &total, list[0].MemoryTotal)
	require.Nil(t, list[0].MemoryUsed, "unknown, not zero")
	list[0].Attached[1].Since = time.Time{}
	require.Equal(t, []gpus.Attachment{
		{EID: "8", User: "uid 1004"}, {EID: "7", Name: "train", User: "alice", Memory: &capacity}, {EID: "gone"},
	}, list[0].Attached)
	require.Equal(t, []gpus.Process{{PID: 9, User: "uid 1004", Command: "python", Container: "c1", Memory: &used}}, list[0].Processes)
	require.Equal(t, gpus.Busy, list[1].State)
	require.Nil(t, list[1].Processes[0].Memory)
	require.Zero(t, list[1].Since())
}

// TestContainersOfProcesses: who started a container is told with its name.
func TestContainersOfProcesses(t *testing.T) {
	root, bob := snapshot.UID(0), snapshot.UID(1002)
	for want, info := range map[string]*snapshot.ContainerInfo{
		"container 4c01db0b339c":                             nil,
		"container web, started by an unknown user":          {Name: "web"},
		"container web (pytorch:24.10), started by bob":      {Name: "web", Image: "pytorch:24.10", UID: &bob, User: "bob", Proof: snapshot.ProofRecord},
		"container web (pytorch:24.10), started by uid 1002": {Name: "web", Image: "pytorch:24.10", UID: &bob, Proof: snapshot.ProofRootless},
	} {
		s := &snapshot.Snapshot{Devices: []snapshot.Device{{}}, Processes: []snapshot.Process{{
			PID: 9, UID: &root, Container: strings.Repeat("4c01db0b339c", 6)[:64], ContainerInfo: info, Usage: []snapshot.DeviceUsage{{}},
		}}}
		require.Equal(t, want, gpus.Of(s)[0].Processes[0].ContainerText())
	}
}

// TestOwnersThatTheHostDoesNotReport: genv 1.4.3 reports the environment alone.
func TestOwnersThatTheHostDoesNotReport(t *testing.T) {
	root, env := snapshot.UID(0), &snapshot.Environment{UID: 1001, Username: "alice"}
	require.Equal(t, snapshot.Username("alice"), gpus.UserName((&snapshot.Process{}).Account(env)))
	require.Empty(t, gpus.UserName((&snapshot.Process{}).Account(nil)))
	require.Equal(t, snapshot.Username("uid 0"), gpus.UserName((&snapshot.Process{UID: &root}).Account(env)), "what the kernel reports goes first")
	require.Equal(t, snapshot.Username("bob"), gpus.UserName((&snapshot.Process{Username: "bob"}).Account(env)))
}
