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
	"github.com/seed-3119e985/genv/snapshot/local"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

func uid(n snapshot.UID) *snapshot.UID { return &n }

func TestSnapshot(t *testing.T) {
	m := newMachine(t)
	m.smi.apps = "GPU-1, 200, 9000\nGPU-0, 200, 512\nGPU-0, 100, 7\n"
	m.process(100, 1001, 5000, "A=1\x00")
	m.process(200, 1002, 6000, "GENV_ENVIRONMENT_ID=2020\x00")
	env := snapshot.Environment{EID: "2020", UID: 1002, PIDs: []snapshot.PID{200}}
	m.files.Environments = []snapshot.Environment{env}
	m.files.Devices[1].Attachments = []snapshot.Attachment{{EID: "2020"}}

	watts, east := 70.12, 3*3600
	m.Now = func() time.Time { return time.Date(2026, 11, 27, 12, 0, 0, 0, time.FixedZone("", east)) }
	found := m.snapshot()
	require.True(t, found.Boot.Before(m.Now()))
	found.Boot = time.Time{}
	require.NotZero(t, *found.FirstUID)
	found.FirstUID = nil
	require.Equal(t, &snapshot.Snapshot{
		Skew: new(time.Duration),
		Processes: []snapshot.Process{
			{PID: 100, Start: 5000, UID: uid(1001), Name: "python3", Usage: []snapshot.DeviceUsage{{Index: 0, Memory: snapshot.MiB(7)}}},
			{PID: 200, EID: "2020", Start: 6000, UID: uid(1002), Name: "python3", Inherited: "2020", Usage: []snapshot.DeviceUsage{
				{Index: 0, Memory: snapshot.MiB(512)}, {Index: 1, Memory: snapshot.MiB(9000)},
			}},
		},
		Environments: []snapshot.Environment{env},
		Devices: []snapshot.Device{
			{Index: 0, TotalMemory: snapshot.MiB(81559), UUID: "GPU-0", Name: "H100", UsedMemory: snapshot.MiB(10), Utilization: new(0), Temperature: new(31), Power: &watts},
			{
				Index: 1, TotalMemory: snapshot.MiB(81559), UUID: "GPU-1", Name: "H100", UsedMemory: snapshot.MiB(20), Utilization: new(50),
				Attachments: []snapshot.Attachment{{EID: "2020"}},
			},
		},
		BootID: bootID, UTCOffset: &east,
	}, found)
}

// An environment is registered before anything runs in it, so a newcomer is
// never misjudged when the state files are read after the processes.
func TestTheStateFilesAreReadLast(t *testing.T) {
	m := machineWith(t, "A=1\x00")
	m.snapshot()
	require.Equal(t, []string{"apps", "devices", "read"}, m.take())
}

func TestASourceThatFailsIsNotAnEmptyMachine(t *testing.T) {
	for name, row := range map[string]struct{ smi, files, want error }{
		"nvidia-smi":                          {smi: nvidiasmi.ErrHung, want: nvidiasmi.ErrHung},
		"no devices":                          {smi: nvidiasmi.ErrNoDevices, want: nvidiasmi.ErrNoDevices},
		"the state files, which 1.4.3 wants":  {files: disk.ErrCorrupt, want: disk.ErrCorrupt},
		"their lock, for the format of 1.4.3": {files: disk.ErrBusy, want: disk.ErrBusy},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.Brief = true
			m.smi.err, m.files.err = row.smi, row.files
			s, err := m.Snapshot(t.Context())
			require.ErrorIs(t, err, row.want)
			require.Nil(t, s)
		})
	}
}

// TestUnreadableStateHidesNoProcess: GPUs and processes are shown, what is attached is unknown,
// and no rule is about these devices.
func TestUnreadableStateHidesNoProcess(t *testing.T) {
	for _, err := range []error{disk.ErrCorrupt, disk.ErrBusy, disk.ErrLost} {
		m := machineWith(t, "A=1\x00")
		m.files.err = err
		s, failed := m.Snapshot(t.Context())
		require.NoError(t, failed)
		require.Len(t, s.Processes, 1)
		require.True(t, s.Processes[0].EnvUnknown)
		require.Len(t, s.Devices, 2)
		for i := range s.Devices {
			require.False(t, s.Devices[i].Judged())
			require.NotEmpty(t, s.Devices[i].UUID)
		}
		require.Contains(t, strings.Join(s.Warnings, "\n"), "attachments are unknown, and no rule acts on these GPUs: the state files can't be used: "+err.Error())
	}
}

func TestGarbageFromNvidiaSMIIsNotAnEmptyMachine(t *testing.T) {
	for _, damage := range []func(*smi){
		func(s *smi) { s.apps = "rubbish" },
		func(s *smi) { s.devices = "rubbish" },
	} {
		m := newMachine(t)
		damage(m.smi)
		require.ErrorIs(t, proctest.Try(m.Snapshot(t.Context())).Err, nvidiasmi.ErrGarbled)
	}
}

func TestDevicesAreRegistered(t *testing.T) {
	attached := []snapshot.Attachment{{EID: "2020"}}
	for name, row := range map[string]struct {
		files    []snapshot.Device
		devices  string
		discover bool
		want     []snapshot.DeviceIndex
	}{
		"the same":              {[]snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(81559)}, {Index: 1, TotalMemory: snapshot.MiB(81559)}}, twoDevices, false, []snapshot.DeviceIndex{0, 1}},
		"written otherwise":     {[]snapshot.Device{{Index: 0, TotalMemory: snapshot.MustMemory("85520809984")}, {Index: 1, TotalMemory: snapshot.MiB(81559)}}, twoDevices, false, []snapshot.DeviceIndex{0, 1}},
		"none registered":       {nil, twoDevices, true, []snapshot.DeviceIndex{0, 1}},
		"a new one":             {[]snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(81559)}}, twoDevices, true, []snapshot.DeviceIndex{0, 1}},
		"one is gone":           {[]snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(81559)}, {Index: 1, TotalMemory: snapshot.MiB(81559)}}, "0, GPU-0, 81559, 1, 0, 31, 70.12, H100\n", true, []snapshot.DeviceIndex{0}},
		"one is gone, attached": {[]snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(81559)}, {Index: 1, TotalMemory: snapshot.MiB(81559), Attachments: attached}}, "0, GPU-0, 81559, 1, 0, 31, 70.12, H100\n", true, []snapshot.DeviceIndex{0, 1}},
		"another memory":        {[]snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(40960)}}, "0, GPU-0, 81559, 1, 0, 31, 70.12, H100\n", true, []snapshot.DeviceIndex{0}},
		"unknown memory":        {[]snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(81559)}}, "0, GPU-0, [Unknown Error], 1, 0, 31, 70.12, H100\n", false, []snapshot.DeviceIndex{0}},
		"never known":           {[]snapshot.Device{}, "0, GPU-0, [Insufficient Permissions], [N/A], 0, 31, 70.12, A100\n", false, []snapshot.DeviceIndex{0}},
		"the machine's":         {[]snapshot.Device{}, "0, GPU-0, [N/A], [N/A], 0, 31, 70.12, GB10\n", true, []snapshot.DeviceIndex{0}},
		"still the machine's":   {[]snapshot.Device{{Index: 0, TotalMemory: snapshot.MachineKiB(131072)}}, "0, GPU-0, [N/A], [N/A], 0, 31, 70.12, GB10\n", false, []snapshot.DeviceIndex{0}},
		"forged as machine's":   {[]snapshot.Device{{Index: 0, Unified: true, TotalMemory: snapshot.MachineKiB(81559 << 10)}}, "0, GPU-0, 81559, 1, 0, 31, 70.12, H100\n", true, []snapshot.DeviceIndex{0}},
		"lost":                  {[]snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(81559)}, {Index: 1, TotalMemory: snapshot.MiB(81559)}}, "Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error\n1, GPU-1, 81559, 1, 0, 31, 70.12, H100\n", false, []snapshot.DeviceIndex{0, 1}},
		"lost, never there":     {[]snapshot.Device{{Index: 1, TotalMemory: snapshot.MiB(81559)}}, "Unable to determine the device handle for GPU0: 0000:01:00.0: Unknown Error\n1, GPU-1, 81559, 1, 0, 31, 70.12, H100\n", false, []snapshot.DeviceIndex{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.files.Devices, m.smi.devices = row.files, row.devices
			m.write("meminfo", "MemTotal:         131072 kB\nMemFree: 5 kB\n")
			s := m.snapshot()
			want := []string{"apps", "devices", "read"}
			if row.discover {
				want = append(want, "discover")
			}
			require.Equal(t, want, m.take())
			var indices []snapshot.DeviceIndex
			for _, d := range s.Devices {
				indices = append(indices, d.Index)
			}
			require.Equal(t, row.want, indices)
			unified := strings.Contains(row.devices, "GB10")
			require.Equal(t, unified, s.Devices[0].Unified)
			require.Equal(t, unified, s.Devices[0].TotalMemory.OfMachine(), "what users wrote is corrected before it is judged")
		})
	}
}

func TestPartsOfASnapshotAskForLess(t *testing.T) {
	m := newMachine(t)
	m.files.Environments = []snapshot.Environment{{EID: "2020"}}
	environments, _, err := m.Environments(t.Context())
	require.NoError(t, err)
	require.Len(t, environments, 1)
	require.Equal(t, []string{"read"}, m.take())

	devices, _, err := m.Devices(t.Context())
	require.NoError(t, err)
	require.Len(t, devices, 2)
	require.Equal(t, []string{"read"}, m.take())

	_, _, err = m.Processes(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"apps"}, m.take(), "no process uses a device")

	m.smi.apps = "GPU-0, 100, 7\n"
	m.process(100, 1001, 5000, "A=1\x00")
	processes, _, err := m.Processes(t.Context())
	require.NoError(t, err)
	require.Len(t, processes, 1)
	require.Equal(t, []string{"apps", "devices", "read"}, m.take())

	m.files.Devices = nil
	environments, _, err = m.Environments(t.Context()) // though there are no devices yet
	require.NoError(t, err)
	require.Len(t, environments, 1)
	require.Equal(t, []string{"read"}, m.take())
	devices, _, err = m.Devices(t.Context())
	require.NoError(t, err)
	require.Len(t, devices, 2)
	require.Equal(t, []string{"read", "devices", "discover"}, m.take())
}

func TestPartsFailAsAWhole(t *testing.T) {
	m := newMachine(t)
	m.files.err, m.smi.err = disk.ErrCorrupt, nvidiasmi.ErrNoDriver
	_, _, err := m.Environments(t.Context())
	require.ErrorIs(t, err, disk.ErrCorrupt)
	_, _, err = m.Devices(t.Context())
	require.ErrorIs(t, err, disk.ErrCorrupt)
	_, _, err = m.Processes(t.Context())
	require.ErrorIs(t, err, nvidiasmi.ErrNoDriver)
	m.files.err, m.files.Devices = nil, nil
	_, _, err = m.Devices(t.Context())
	require.ErrorIs(t, err, nvidiasmi.ErrNoDriver)
}

func TestAListOfDevicesIsUsedAgain(t *testing.T) {
	m := machineWith(t, "A=1\x00")
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	m.DeviceListTTL, m.Now = time.Minute, func() time.Time { return now }
	m.snapshot()
	m.take()
	m.snapshot()
	require.Equal(t, []string{"apps", "read"}, m.take(), "while it is fresh")

	now = now.Add(time.Minute)
	m.snapshot()
	require.Equal(t, []string{"apps", "devices", "read"}, m.take(), "not when it is old")

	now = now.Add(4 * time.Second)
	for _, step := range []struct {
		age  time.Duration
		want []string
	}{
		{5 * time.Second, []string{"apps", "read"}},
		{time.Hour, []string{"apps", "read"}},
		{4 * time.Second, []string{"apps", "devices", "read"}},
	} {
		proctest.Try(m.SnapshotWithin(t.Context(), local.Age{Measured: step.age})).OK(t)
		require.Equal(t, step.want, m.take(), "a list that is less than %s old", step.age)
	}

	m.smi.apps = "GPU-2, 100, 7\n"
	m.smi.devices += "2, GPU-2, 81559, 0, 0, 31, 70.12, H100\n"
	require.Equal(t, snapshot.DeviceIndex(2), m.snapshot().Processes[0].Usage[0].Index)
	require.Equal(t, []string{"apps", "devices", "read", "discover"}, m.take(), "nor when it lacks a device")
}

func TestWarningsOfTheStateFiles(t *testing.T) {
	m := newMachine(t)
	m.files.Warnings = []string{"something was worked around"}
	m.files.Environments = []snapshot.Environment{{EID: "2020", UID: 1002, Username: "bob", OwnerMismatch: true}, {EID: "1667"}}
	s := m.snapshot()
	require.Len(t, s.Warnings, 2)
	require.Equal(t, "something was worked around", s.Warnings[0])
	require.Contains(t, s.Warnings[1], "environment 2020 is registered for uid 1002")
}

func TestAnUnknownBootIDIsAWarning(t *testing.T) {
	m := newMachine(t)
	m.write("sys/kernel/random/boot_id", "rubbish")
	s := m.snapshot()
	require.Empty(t, s.BootID)
	require.Len(t, s.Warnings, 1)
}

// Any user can register environments in the names of others, as many as there is room for.
func TestWarningsOfTheStateFilesAreBounded(t *testing.T) {
	m := newMachine(t)
	for i := range 5000 {
		m.files.Environments = append(m.files.Environments, snapshot.Environment{
			EID: snapshot.EnvID(fmt.Sprint(i)), Username: snapshot.Username(strings.Repeat("x", 4096)), OwnerMismatch: true,
		})
	}
	warnings := m.snapshot().Warnings
	require.Len(t, warnings, 22)
	require.Less(t, len(warnings[0]), 400)
	require.Contains(t, warnings[20], "4980 more environments")
}

// An environment of which `genv run` is the only process has no shell.
func TestEnvironmentsOfRun(t *testing.T) {
	m := newMachine(t)
	m.process(10, 1001, 2, "")
	m.write("11/stat", stat(11, "genv", "S", 2, 3))
	for eid, e := range map[snapshot.EnvID]snapshot.Environment{
		"run": {PIDs: []snapshot.PID{11}}, "shell": {PIDs: []snapshot.PID{10}}, "both": {PIDs: []snapshot.PID{10, 11}},
		"kernel": {PIDs: []snapshot.PID{11}, KernelIDs: []string{"k"}}, "gone": {PIDs: []snapshot.PID{99}}, "empty": {},
	} {
		e.EID = eid
		m.files.Environments = append(m.files.Environments, e)
	}
	for _, e := range m.snapshot().Environments {
		require.Equal(t, e.EID == "run", e.Runs, e.EID)
	}
}

func TestStateFolder(t *testing.T) {
	machine, store := realMachine(t)
	machine.SMI = listed{}
	s := proctest.Try(machine.Snapshot(t.Context())).OK(t)
	folder, owned, _ := store.Folder() // without an id after an error
	require.Equal(t, []any{folder, owned}, []any{s.StateFolder, s.Service})
	require.Regexp(t, `^\d+:\d+/\d+$`, folder)

	other, _ := realMachine(t)
	other.SMI = listed{}
	s = proctest.Try(other.Snapshot(t.Context())).OK(t)
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

// TestAnIdleHost takes the last look again only as long as nothing has changed.
func TestAnIdleHost(t *testing.T) {
	m := newMachine(t)
	m.DeviceListTTL, m.files.At = time.Minute, time.Now()
	require.Same(t, &m.snapshot().Devices[0], &m.snapshot().Devices[0])
	m.files.Devices[1].Attachments, m.files.At = []snapshot.Attachment{{EID: "7"}}, time.Now()
	require.Len(t, m.snapshot().Devices[1].Attachments, 1)
	m.smi.apps = "GPU-0, [N/A], [N/A]\n"
	require.True(t, m.snapshot().Devices[0].ProcessesUnknown)
	m.smi.apps, m.DeviceListTTL = "", time.Nanosecond
	m.smi.devices = strings.Replace(twoDevices, "31,", "32,", 1)
	require.Equal(t, 32, *m.snapshot().Devices[0].Temperature)
}
