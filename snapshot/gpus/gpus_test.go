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
	instances := []snapshot.Instance{{UUID: "MIG-a"}}
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
		"a desktop's":                        {device: snapshot.Device{Display: new(true), Utilization: &some, UsedMemory: snapshot.MiB(1024)}, processes: drawn, want: gpus.Free},
		"drawn on without a screen":          {processes: drawn, want: gpus.Busy},
		"used, unknown utilization":          {processes: used, want: gpus.Busy},
		"used and computing":                 {device: snapshot.Device{Utilization: &some}, processes: used, want: gpus.Busy},
		"held, not computing":                {device: snapshot.Device{Utilization: &zero}, processes: used, want: gpus.Idle},
		"divided":                            {device: snapshot.Device{Instances: instances, MIGMode: true}, want: gpus.MIG},
		"divided, of an older host":          {device: snapshot.Device{Instances: instances}, want: gpus.MIG},
		"divided and attached":               {device: snapshot.Device{Instances: instances, MIGMode: true, Attachments: attached}, want: gpus.Attached},
		"divided and used":                   {device: snapshot.Device{Instances: instances, MIGMode: true}, processes: used, want: gpus.Busy},
		"in MIG mode, instances unknown":     {device: snapshot.Device{MIGMode: true}, want: gpus.Unknown},
		"in MIG mode, without instances":     {device: snapshot.Device{MIGMode: true, Unusable: "it has none"}, want: gpus.Unusable},
		"prohibited, attached and used":      {device: snapshot.Device{Unusable: "prohibited", Attachments: attached}, processes: used, want: gpus.Unusable},
		"prohibited and failed":              {device: snapshot.Device{Unusable: "prohibited", Failed: true}, want: gpus.Failed},
		"held and attached, no computing":    {device: snapshot.Device{Utilization: &zero, Attachments: attached}, processes: used, want: gpus.Idle},
	} {
		t.Run(name, func(t *testing.T) {
			list := gpus.Of(&snapshot.Snapshot{Devices: []snapshot.Device{row.device}, Processes: row.processes})
			require.Len(t, list, 1)
			require.Equal(t, row.want, list[0].State)
		})
	}
}

// TestInUse: what CUDA can't use whole says so whatever else is true of it, and why it can't is its problem.
func TestInUse(t *testing.T) {
	list := gpus.Of(&snapshot.Snapshot{
		Devices: []snapshot.Device{
			{Index: 0},
			{Index: 1, Unusable: "its compute mode is Prohibited", Problem: "power: Unknown Error"},
			{Index: 2, MIGMode: true},
			{Index: 3},
			{Index: 4, Instances: []snapshot.Instance{{UUID: "MIG-a"}}, Attachments: []snapshot.Attachment{{EID: "7"}}},
		},
		Processes: []snapshot.Process{{PID: 9, Usage: []snapshot.DeviceUsage{{Index: 1}, {Index: 3}, {Index: 4}}}},
	})
	require.Equal(t, map[snapshot.DeviceIndex]gpus.State{1: gpus.Unusable, 2: gpus.MIG, 3: gpus.Busy, 4: gpus.MIG}, gpus.InUse(list))
	require.EqualValues(t, "its compute mode is Prohibited; power: Unknown Error", list[1].Problem)
	var counts gpus.StateCounts
	counts.Add(list...)
	require.Equal(t, gpus.StateCounts{Free: 1, Unusable: 1, Unknown: 1, Busy: 2}, counts)
	require.Equal(t, 5, counts.Total())
}

// TestLast: a GPU with a screen, or a much smaller one, is for those whom no other is left.
func TestLast(t *testing.T) {
	gib := func(n int64) *int64 { n <<= 30; return &n }
	large := func(index snapshot.DeviceIndex, display *bool) gpus.GPU {
		return gpus.GPU{Index: index, MemoryTotal: gib(80), Display: display}
	}
	for name, row := range map[string]struct {
		list []gpus.GPU
		want []snapshot.DeviceIndex
	}{
		"nothing is known":        {[]gpus.GPU{{Index: 0}, {Index: 1}}, nil},
		"all are alike":           {[]gpus.GPU{large(0, nil), large(1, nil)}, nil},
		"all have screens":        {[]gpus.GPU{large(0, new(true)), large(1, new(true))}, nil},
		"one has a screen":        {[]gpus.GPU{large(0, new(true)), large(1, new(false))}, []snapshot.DeviceIndex{0}},
		"of one it is unknown":    {[]gpus.GPU{large(0, new(true)), large(1, nil), large(2, new(false))}, []snapshot.DeviceIndex{1, 0}},
		"the others are unknown":  {[]gpus.GPU{large(0, new(true)), large(1, nil)}, []snapshot.DeviceIndex{0}},
		"one is small":            {[]gpus.GPU{{Index: 0, MemoryTotal: gib(39)}, large(1, nil)}, []snapshot.DeviceIndex{0}},
		"one is half":             {[]gpus.GPU{{Index: 0, MemoryTotal: gib(40)}, large(1, nil)}, nil},
		"memory is unknown":       {[]gpus.GPU{{Index: 0}, large(1, nil)}, nil},
		"small and with a screen": {[]gpus.GPU{{Index: 0, MemoryTotal: gib(4), Display: new(true)}, large(1, new(true)), large(2, new(false))}, []snapshot.DeviceIndex{1, 0}},
	} {
		require.Equal(t, row.want, gpus.Last(row.list), name)
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
