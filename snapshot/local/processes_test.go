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

	"github.com/seed-3119e985/genv/snapshot"
)

func usage(index snapshot.DeviceIndex, mib int64) snapshot.DeviceUsage {
	return snapshot.DeviceUsage{Index: index, Memory: snapshot.MiB(mib)}
}

func TestAttribution(t *testing.T) {
	for name, row := range map[string]struct {
		apps     string
		want     []snapshot.DeviceUsage // of process 100; nil when it is not listed
		warnings int
		list     bool
	}{
		"one device":                    {"GPU-0, 100, 5", []snapshot.DeviceUsage{usage(0, 5)}, 0, false},
		"two devices":                   {"GPU-1, 100, 5\nGPU-0, 100, 6", []snapshot.DeviceUsage{usage(0, 6), usage(1, 5)}, 0, false},
		"unknown memory":                {"GPU-0, 100, [N/A]", []snapshot.DeviceUsage{{Index: 0}}, 0, false},
		"listed twice: the same memory": {"GPU-0, 100, 5\nGPU-0, 100, 6", []snapshot.DeviceUsage{usage(0, 6)}, 0, false},
		"listed twice, once unknown":    {"GPU-0, 100, [N/A]\nGPU-0, 100, 6", []snapshot.DeviceUsage{usage(0, 6)}, 0, false},
		"listed twice, first known":     {"GPU-0, 100, 6\nGPU-0, 100, [N/A]", []snapshot.DeviceUsage{usage(0, 6)}, 0, false},
		"an unknown id":                 {"GPU-9, 100, 5", nil, 1, false},
		"an unknown id and a known one": {"GPU-9, 100, 5\nGPU-1, 100, 6", []snapshot.DeviceUsage{usage(1, 6)}, 1, false},
		"no id":                         {"[N/A], 100, 5", nil, 1, false},
		"processes not listed":          {"GPU-0, [Not Supported], [Not Supported]", nil, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineWith(t, "A=1\x00")
			m.smi.apps = row.apps
			s := m.snapshot()
			require.Len(t, s.Warnings, row.warnings, s.Warnings)
			require.Equal(t, row.list, strings.Contains(strings.Join(m.take(), " "), "list"))
			if row.want == nil {
				require.Empty(t, s.Processes)
				return
			}
			require.Len(t, s.Processes, 1)
			require.Equal(t, row.want, s.Processes[0].Usage)
		})
	}
}

func TestAnUnknownDeviceIDIsLookedUpOnce(t *testing.T) {
	m := newMachine(t)
	m.DeviceListTTL = time.Hour
	m.smi.apps = "GPU-9, 100, 5\nGPU-0, 100, 5\n"
	m.process(100, 1001, 5000, "A=1\x00")
	require.Len(t, m.snapshot().Warnings, 1)
	require.Equal(t, []string{"apps", "devices", "read"}, m.take())
	s := m.snapshot()
	require.Equal(t, []string{"apps", "read"}, m.take())
	require.Len(t, s.Warnings, 1)
	require.Equal(t, []snapshot.DeviceUsage{usage(0, 5)}, s.Processes[0].Usage)
}

// TestInstances: a device with MIG has no utilization, so that its instances are asked for even if no process uses one.
func TestInstances(t *testing.T) {
	m := newMachine(t)
	m.DeviceListTTL = time.Hour
	m.smi.devices = "0, GPU-0, 81559, 10, [N/A], 31, 70.12, H100\n1, GPU-1, 81559, 20, 50, 31, 70.12, H100\n"
	m.smi.apps = ""
	const instance = "<mig_device><gpu_instance_id>%d</gpu_instance_id><compute_instance_id>0</compute_instance_id><fb_memory_usage><total>9984 MiB</total></fb_memory_usage></mig_device>"
	m.smi.details = "<nvidia_smi_log><gpu><uuid>GPU-0</uuid><mig_devices>" + fmt.Sprintf(instance, 7) + fmt.Sprintf(instance, 8) +
		"</mig_devices><processes><process_info><gpu_instance_id>8</gpu_instance_id><compute_instance_id>0</compute_instance_id><pid>100</pid></process_info></processes></gpu></nvidia_smi_log>"
	s := m.snapshot()
	require.Equal(t, []string{"apps", "devices", "list", "details", "read"}, m.take())
	require.Equal(t, []snapshot.Instance{
		{UUID: "MIG-a", Profile: "1g.10gb", Total: snapshot.MiB(9984), Pool: "7"}, {UUID: "MIG-b", Profile: "1g.10gb", Total: snapshot.MiB(9984), Pool: "8"},
	}, s.Device(0).Instances)
	require.Nil(t, s.Device(0).Utilization)
	require.Empty(t, s.Device(1).Instances)

	m.process(100, 1001, 5000, "A=1\x00")
	m.smi.apps = "GPU-0, 100, 11\nGPU-1, 100, 5\n"
	for range 2 {
		s = m.snapshot()
		require.Equal(t, []string{"apps", "read"}, m.take(), "the answer about the instances says it")
		require.Equal(t, []snapshot.DeviceUsage{usage(0, 11), usage(1, 5)}, s.Processes[0].Usage)
		require.Equal(t, []snapshot.GPUUUID{"MIG-b"}, s.Processes[0].Instances)
	}
	m.smi.apps, m.smi.details = "GPU-0, 100, 11\nGPU-0, 101, 3\n", "rubbish"
	m.process(101, 1001, 5000, "A=1\x00")
	s = m.snapshot()
	require.Equal(t, []string{"apps", "details", "read"}, m.take())
	require.Empty(t, s.Processes[1].Instances, "it can't be found out")
	_ = m.snapshot()
	require.Equal(t, []string{"apps", "read"}, m.take(), "once for each process")
	require.Equal(t, []snapshot.DeviceUsage{usage(0, 3)}, s.Processes[1].Usage)
}

// TestWhatCUDACannotUse: a GPU can be kept out by its compute mode.
func TestWhatCUDACannotUse(t *testing.T) {
	m := newMachine(t)
	m.smi.modes = []string{"display_active", "compute_mode", "mig.mode.current"}
	m.smi.devices = "0, GPU-0, 81559, 10, 7, 31, 70.12, H100, 550.1, [N/A], Default, Enabled\n1, GPU-1, 81559, 20, [N/A], [N/A], [N/A], H100, 550.1, Enabled, Prohibited, [N/A]\n"
	s := m.snapshot()
	require.Equal(t, [2]string{"", "its compute mode is Prohibited"}, [2]string{s.Device(0).Unusable, s.Device(1).Unusable})
	require.True(t, s.Device(0).MIGMode && !s.Device(1).MIGMode && s.Device(0).Display == nil && *s.Device(1).Display)
}

// TestInstancesInTheListOfProcesses: they belong to their GPUs, by the names that nvidia-smi -L has, and by older ones.
func TestInstancesInTheListOfProcesses(t *testing.T) {
	m := newMachine(t)
	m.DeviceListTTL = time.Hour
	m.process(100, 1001, 5000, "A=1\x00")
	for _, row := range []struct {
		app      string
		asked    []string
		on       snapshot.DeviceIndex
		instance []snapshot.GPUUUID
	}{
		{"MIG-b, 100, 5", []string{"apps", "devices", "list", "details", "read"}, 0, []snapshot.GPUUUID{"MIG-b"}},
		{"MIG-b, 100, 5", []string{"apps", "read"}, 0, []snapshot.GPUUUID{"MIG-b"}},
		{"MIG-GPU-1/7/0, 100, 5", []string{"apps", "read"}, 1, nil},
	} {
		m.smi.apps = row.app
		m.take()
		s := m.snapshot()
		require.Equal(t, row.asked, m.take())
		require.Empty(t, s.Warnings)
		require.Equal(t, []snapshot.DeviceUsage{usage(row.on, 5)}, s.Processes[0].Usage)
		require.Equal(t, row.instance, s.Processes[0].Instances)
	}
	m.smi.apps = "MIG-a, [N/A], [N/A]"
	s := m.snapshot()
	require.True(t, s.Device(0).ProcessesUnknown && !s.Device(1).ProcessesUnknown, "of the parent")
	m.smi.apps = "MIG-z, 100, 5"
	require.Contains(t, m.snapshot().Warnings[0], "process 100 uses MIG-z, which the driver does not list")
}

// TestDevicesWithoutAListOfProcesses: they are not unused.
func TestDevicesWithoutAListOfProcesses(t *testing.T) {
	for apps, want := range map[string][]snapshot.DeviceIndex{
		"GPU-0, 100, [N/A]":                       nil,
		"GPU-0, [Not Supported], [Not Supported]": {0},
		"GPU-1, [N/A], [N/A]\nGPU-0, 100, 5":      {1},
	} {
		m := machineWith(t, "A=1\x00")
		m.smi.apps = apps
		var marked []snapshot.DeviceIndex
		for _, d := range m.snapshot().Devices {
			if d.ProcessesUnknown {
				marked = append(marked, d.Index)
			}
		}
		require.Equal(t, want, marked, apps)
	}
}

// writes replaces files of process 100: names and contents.
func writes(files ...string) func(*machine) {
	return func(m *machine) {
		for file := range slices.Chunk(files, 2) {
			m.write("100/"+file[0], file[1])
		}
	}
}

// seenAs is how it is seen, but for a change.
func seenAs(change func(*snapshot.Process)) *snapshot.Process {
	p := snapshot.Process{PID: 100, EID: "2020", Start: 5000, UID: uid(1001), Name: "python3"}
	change(&p)
	return &p
}

// TestIdentity: process 100 in the lists of nvidia-smi, and what /proc says of it.
func TestIdentity(t *testing.T) {
	for name, row := range map[string]struct {
		damage   func(*machine)
		want     *snapshot.Process // nil when it is left out
		warnings int
	}{
		"in an environment":             {func(*machine) {}, seenAs(func(*snapshot.Process) {}), 0},
		"in none":                       {writes("environ", "A=1\x00"), seenAs(func(p *snapshot.Process) { p.EID = "" }), 0},
		"an empty claim":                {writes("environ", "GENV_ENVIRONMENT_ID=\x00"), seenAs(func(p *snapshot.Process) { p.EID = "" }), 0},
		"an impossible claim":           {writes("environ", "GENV_ENVIRONMENT_ID=\x1b[31m\x00"), seenAs(func(p *snapshot.Process) { p.EID = snapshot.Claim("\x1b[31m") }), 0},
		"a claim that is not UTF-8":     {writes("environ", "GENV_ENVIRONMENT_ID=\xff\x00"), seenAs(func(p *snapshot.Process) { p.EID = snapshot.Claim("\xff") }), 0},
		"an endless claim":              {writes("environ", "GENV_ENVIRONMENT_ID="+strings.Repeat("x", 1<<20)+"\x00"), seenAs(func(p *snapshot.Process) { p.EID = snapshot.Claim(strings.Repeat("x", 1<<20)) }), 0},
		"an empty environ":              {writes("environ", ""), seenAs(func(p *snapshot.Process) { p.EID, p.EnvUnknown, p.EnvOverwritten = "", true, true }), 1},
		"a garbled status":              {writes("status", "rubbish"), seenAs(func(p *snapshot.Process) { p.UID = nil }), 1},
		"a garbled stat":                {writes("stat", "rubbish"), seenAs(func(p *snapshot.Process) { p.Start, p.Name = 0, "" }), 1},
		"a name to obey":                {writes("stat", stat(100, "\x1b[2J\xff", "S", 5000, 6000)), seenAs(func(p *snapshot.Process) { p.Name = "?[2J?" }), 0},
		"gone":                          {func(m *machine) { m.remove(100) }, nil, 1},
		"a zombie":                      {writes("stat", stat(100, "python3", "Z", 5000, 0)), nil, 0},
		"a title over the environ":      {writes("environ", "n.py --lr=1\x00\x00GENV_ENVIRONMENT_ID=2020\x00"), seenAs(func(p *snapshot.Process) { p.EID, p.EnvUnknown, p.EnvOverwritten = "", true, true }), 1},
		"an environ that is not shown":  {writes("stat", stat(100, "python3", "S", 5000, 0), "environ", ""), seenAs(func(p *snapshot.Process) { p.EID, p.EnvUnknown = "", true }), 1},
		"a command line":                {writes("cmdline", "python3\x00train\x1b.py\x00"), seenAs(func(p *snapshot.Process) { p.Command = "python3 train?.py" }), 0},
		"a container":                   {writes("cgroup", "0::/lxc/web\n"), seenAs(func(p *snapshot.Process) { p.Container = "web" }), 0},
		"a garbled status and no claim": {writes("environ", "A=1\x00", "status", "rubbish"), seenAs(func(p *snapshot.Process) { p.EID, p.UID, p.EnvUnknown = "", nil, true }), 2},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineWith(t, "GENV_ENVIRONMENT_ID=2020\x00")
			row.damage(m)
			s := m.snapshot()
			require.Len(t, s.Warnings, row.warnings, s.Warnings)
			for _, w := range s.Warnings {
				require.NotContains(t, w, "\x1b")
			}
			if row.want == nil {
				require.Empty(t, s.Processes)
				return
			}
			row.want.Usage = []snapshot.DeviceUsage{usage(0, 5)}
			require.Equal(t, []snapshot.Process{*row.want}, s.Processes)
		})
	}
}

// Where /proc hides the processes of others, PID 1 is absent too.
func TestAHiddenProcessIsUnknown(t *testing.T) {
	m := newMachine(t)
	m.remove(1)
	m.smi.apps = "GPU-0, 100, 5\n"
	s := m.snapshot()
	want := []snapshot.Process{{PID: 100, EnvUnknown: true, Usage: []snapshot.DeviceUsage{usage(0, 5)}}}
	require.Equal(t, want, s.Processes)
	require.Len(t, s.Warnings, 1)

	require.NoError(t, os.Mkdir(filepath.Join(m.Proc.Root, "100"), 0o755)) // with hidepid=2 it can be opened
	s = m.snapshot()
	require.Equal(t, want, s.Processes)
	require.Len(t, s.Warnings, 1)

	m.Brief = true // no process would be "no processes"
	_, err := m.Snapshot(t.Context())
	require.ErrorContains(t, err, "hidepid")
	_, _, err = m.Processes(t.Context())
	require.ErrorContains(t, err, "hidepid")
}

func TestAnEnvironIsReadAgainOnlyWhenItMayBeAnother(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*machine)
		again  bool
	}{
		"nothing changed":      {func(*machine) {}, false},
		"another process":      {writes("stat", stat(100, "python3", "S", 7000, 6000)), true},
		"another program":      {writes("stat", stat(100, "python3", "S", 5000, 6001)), true},
		"another name":         {writes("stat", stat(100, "bash", "S", 5000, 6000)), true},
		"address not shown":    {writes("stat", stat(100, "python3", "S", 5000, 0)), true},
		"it was away meantime": {func(m *machine) { m.smi.apps = ""; m.snapshot(); m.smi.apps = "GPU-0, 100, 5\n" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := machineWith(t, "GENV_ENVIRONMENT_ID=before\x00")
			require.Equal(t, snapshot.EnvID("before"), m.snapshot().Processes[0].EID)
			m.write("100/environ", "GENV_ENVIRONMENT_ID=after\x00")
			row.change(m)
			want := snapshot.EnvID("before")
			if row.again {
				want = "after"
			}
			require.Equal(t, want, m.snapshot().Processes[0].EID)
		})
	}
}

func TestAnEnvironThatCouldNotBeReadIsTriedAgain(t *testing.T) {
	m := machineWith(t, "")
	require.True(t, m.snapshot().Processes[0].EnvUnknown)
	m.write("100/environ", "GENV_ENVIRONMENT_ID=2020\x00")
	p := m.snapshot().Processes[0]
	require.False(t, p.EnvUnknown)
	require.Equal(t, snapshot.EnvID("2020"), p.EID)
}

// A process writes another id over its environment, in place: what it is judged
// by is what is compared when it is to end.
func TestAClaimThatWasOverwrittenIsNoticedWhenTheProcessIsVerified(t *testing.T) {
	m := machineWith(t, "GENV_ENVIRONMENT_ID=1667\x00")
	require.Equal(t, snapshot.EnvID("1667"), m.snapshot().Processes[0].EID)

	m.process(100, 1001, 5000, "GENV_ENVIRONMENT_ID=2020\x00")
	processes, _, err := m.Processes(t.Context())
	require.NoError(t, err)
	require.Equal(t, snapshot.EnvID("2020"), processes[0].EID)
	require.Equal(t, snapshot.EnvID("2020"), m.snapshot().Processes[0].EID)
}
