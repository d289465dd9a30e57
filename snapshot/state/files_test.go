package state_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// aliceAndBob are two environments; alice's has two processes and a kernel.
func aliceAndBob() state.Files {
	b := state.Files{Devices: gpus(2), Environments: []snapshot.Environment{
		{
			EID: "1667", UID: 1001, Username: "alice", Creation: at("10:00:00"), PIDs: []snapshot.PID{10, 11}, KernelIDs: []string{"k-1"},
			Config: snapshot.EnvConfig{Name: "my-env", GPUs: new(2)},
		},
		{EID: "2020", UID: 1002, Username: "bob", Creation: at("10:00:00"), PIDs: []snapshot.PID{20}},
	}}
	b.Devices[0].Attachments = []snapshot.Attachment{attachment("1667", "")}
	b.Devices[1].Attachments = []snapshot.Attachment{attachment("2020", "")}
	return b
}

func TestActivateRegistersANewEnvironment(t *testing.T) {
	b := aliceAndBob()
	config := snapshot.EnvConfig{Name: "Norwegian Wood", GPUMemory: snapshot.MustMemory("4g")}
	require.NoError(t, b.Activate(state.Activation{
		EID: "30", UID: 1003, Username: "carol", PID: 30, Config: config, At: at("12:00:00"),
	}))
	require.Equal(t, snapshot.Environment{
		EID: "30", UID: 1003, Username: "carol", Creation: at("12:00:00"), PIDs: []snapshot.PID{30}, Config: config,
	}, *b.Environment("30"))
	require.Len(t, b.Environments, 3)
}

func TestActivateEntersAnEnvironment(t *testing.T) {
	for _, tt := range []struct {
		name       string
		activation state.Activation
		pids       []snapshot.PID
		kernels    []string
		config     snapshot.EnvConfig
	}{
		{
			"another terminal of its user",
			state.Activation{EID: "1667", UID: 1001, PID: 12},
			[]snapshot.PID{10, 11, 12},
			[]string{"k-1"},
			*configOf("my-env", 2),
		},
		{
			"root",
			state.Activation{EID: "1667", UID: 0, PID: 12},
			[]snapshot.PID{10, 11, 12},
			[]string{"k-1"},
			*configOf("my-env", 2),
		},
		{
			"a process that is in it",
			state.Activation{EID: "1667", UID: 1001, PID: 10},
			[]snapshot.PID{10, 11},
			[]string{"k-1"},
			*configOf("my-env", 2),
		},
		{
			"a kernel",
			state.Activation{EID: "1667", UID: 1001, KernelID: "k-2"},
			[]snapshot.PID{10, 11},
			[]string{"k-1", "k-2"},
			*configOf("my-env", 2),
		},
		{
			"a new configuration replaces the old one",
			state.Activation{EID: "1667", UID: 1001, PID: 12, Config: snapshot.EnvConfig{GPUs: new(3)}},
			[]snapshot.PID{10, 11, 12},
			[]string{"k-1"},
			*configOf("my-env", 3),
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := aliceAndBob()
			require.NoError(t, b.Activate(tt.activation))
			env := b.Environment("1667")
			require.Equal(t, tt.pids, env.PIDs)
			require.Equal(t, tt.kernels, env.KernelIDs)
			require.Equal(t, tt.config, env.Config)
			require.Equal(t, snapshot.UID(1001), env.UID, "it stays its user's")
			require.Equal(t, snapshot.Username("alice"), env.Username)
			require.Len(t, b.Environments, 2)
		})
	}
}

func configOf(name string, devices int) *snapshot.EnvConfig {
	return &snapshot.EnvConfig{Name: name, GPUs: &devices}
}

func TestActivateRefusesAndChangesNothing(t *testing.T) {
	for _, tt := range []struct {
		name       string
		activation state.Activation
		is         error
	}{
		{"the environment of another user", state.Activation{EID: "1667", UID: 1002, PID: 12}, state.ErrNotOwner},
		{"a process of another environment", state.Activation{EID: "1667", UID: 1001, PID: 20}, state.ErrActive},
		{"a kernel of another environment", state.Activation{EID: "new", UID: 1001, KernelID: "k-1"}, state.ErrActive},
		{"a new one for a process that has one", state.Activation{EID: "new", UID: 1001, PID: 10}, state.ErrActive},
		{"no process", state.Activation{EID: "new", UID: 1001}, state.ErrRequest},
		{"a negative process", state.Activation{EID: "new", UID: 1001, PID: -1}, state.ErrRequest},
		{"no id", state.Activation{UID: 1001, PID: 12}, state.ErrRequest},
		{"a control character in the id", state.Activation{EID: "a\nb", UID: 1001, PID: 12}, state.ErrRequest},
		{"a control character in the name", state.Activation{EID: "n", UID: 1001, PID: 12, Config: snapshot.EnvConfig{Name: "\x1b[2J"}}, state.ErrRequest},
		{"a name that is too long", state.Activation{EID: "n", UID: 1001, PID: 12, Config: snapshot.EnvConfig{Name: strings.Repeat("x", 5000)}}, state.ErrRequest},
		{"a control character in the username", state.Activation{EID: "n", UID: 1001, PID: 12, Username: "a\x00"}, state.ErrRequest},
		{"more devices than a file can have", state.Activation{EID: "n", UID: 1001, PID: 12, Config: *configOf("", 1<<31)}, state.ErrRequest},
		{"no devices", state.Activation{EID: "n", UID: 1001, PID: 12, Config: snapshot.EnvConfig{GPUs: new(0)}}, state.ErrRequest},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := aliceAndBob()
			require.ErrorIs(t, b.Activate(tt.activation), tt.is)
			require.Equal(t, aliceAndBob(), b)
		})
	}
}

func TestDeactivate(t *testing.T) {
	for _, tt := range []struct {
		name  string
		pids  []snapshot.PID
		ended snapshot.EnvID // the environment that is no more
	}{
		{"one of several", []snapshot.PID{10}, ""},
		{"the last but for a kernel", []snapshot.PID{10, 11}, ""},
		{"the last", []snapshot.PID{20}, "2020"},
		{"one that is in none", []snapshot.PID{99}, ""},
		{"no process at all", []snapshot.PID{0}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := aliceAndBob()
			for _, pid := range tt.pids {
				b.Deactivate(pid)
				require.Nil(t, b.EnvironmentOf(pid))
			}
			for _, eid := range []snapshot.EnvID{"1667", "2020"} {
				require.Equal(t, eid != tt.ended, b.Environment(eid) != nil, eid)
				require.Equal(t, eid != tt.ended, len(b.AttachedTo(eid)) == 1, "attachments of %s", eid)
			}
		})
	}
}

func TestAnEnvironmentEndsWithItsLastKernel(t *testing.T) {
	b := aliceAndBob()
	b.Deactivate(10)
	b.Deactivate(11)
	require.NotNil(t, b.Environment("1667"))
	require.NotNil(t, b.EnvironmentOfKernel("k-1", 1001))
	b.Remove(b.EnvironmentOfKernel("k-1", 1001), 0, "k-1")
	require.Nil(t, b.Environment("1667"))
}

func TestConfigure(t *testing.T) {
	b := aliceAndBob()
	require.NoError(t, b.Configure("2020", *configOf("other", 1)))
	require.Equal(t, *configOf("other", 1), b.Environment("2020").Config)
	require.NoError(t, b.Configure("2020", snapshot.EnvConfig{}), "cleared")
	require.Equal(t, snapshot.EnvConfig{}, b.Environment("2020").Config)
	require.Equal(t, indices{1}, b.AttachedTo("2020"), "attachments stay")

	before := slices.Clone(b.Environments)
	require.ErrorIs(t, b.Configure("99", snapshot.EnvConfig{}), state.ErrNoEnvironment)
	require.ErrorIs(t, b.Configure("2020", *configOf("", 0)), state.ErrRequest)
	require.ErrorIs(t, b.Configure("2020", *configOf("", 1<<31)), state.ErrRequest)
	require.ErrorIs(t, b.Configure("2020", *configOf("a\tb", 1)), state.ErrRequest)
	require.Equal(t, before, b.Environments)
	none := snapshot.EnvConfig{Name: "named", GPUMemory: snapshot.MustMemory("0")}
	require.NoError(t, b.Configure("2020", none), "a file may have a capacity of 0, and the environment gets a name still")
}

func TestCheckOwner(t *testing.T) {
	b := aliceAndBob()
	require.NoError(t, b.CheckOwner("1667", 1001))
	require.NoError(t, b.CheckOwner("1667", 0))
	require.ErrorIs(t, b.CheckOwner("1667", 1002), state.ErrNotOwner)
	require.ErrorIs(t, b.CheckOwner("99", 1001), state.ErrNoEnvironment)
	require.ErrorIs(t, b.CheckOwner("99", 0), state.ErrNoEnvironment)
}

func device(index snapshot.DeviceIndex, memory string, attachments ...snapshot.Attachment) snapshot.Device {
	d := snapshot.Device{Index: index, Attachments: attachments}
	if memory != "" {
		d.TotalMemory = snapshot.MustMemory(memory)
	}
	return d
}

func TestMerge(t *testing.T) {
	held := attachment("1667", "")
	for _, tt := range []struct {
		name                   string
		files, found, expected []snapshot.Device
		notes                  int
	}{
		{"the first time", nil, gpus(2), gpus(2), 0},
		{"a host without devices", nil, nil, []snapshot.Device{}, 0},
		{"nothing new", gpus(2), gpus(2), gpus(2), 0},
		{"a new one", gpus(1), gpus(2), gpus(2), 0},
		{
			"a new one in between",
			[]snapshot.Device{device(1, "4g", held)},
			[]snapshot.Device{device(1, "4g"), device(0, "4g")},
			[]snapshot.Device{device(0, "4g"), device(1, "4g", held)},
			0,
		},
		{"a changed memory", []snapshot.Device{device(0, "4g", held)}, []snapshot.Device{device(0, "8g")}, []snapshot.Device{device(0, "8g", held)}, 0},
		{"the same memory keeps its spelling", []snapshot.Device{device(0, "1048576")}, []snapshot.Device{device(0, "1mi")}, []snapshot.Device{device(0, "1048576")}, 0},
		{"a memory that nvidia-smi does not report", []snapshot.Device{device(0, "4g", held)}, []snapshot.Device{device(0, "")}, []snapshot.Device{device(0, "4g", held)}, 0},
		{"a new one without a known memory", gpus(1), append(gpus(1), device(1, "")), gpus(1), 1},
		{"one that is gone", gpus(2), gpus(1), gpus(1), 0},
		{"one that is gone but attached", []snapshot.Device{device(0, "4g", held)}, nil, []snapshot.Device{device(0, "4g", held)}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := state.Files{Devices: tt.files}
			b.MergeDevices(tt.found)
			require.Len(t, b.Warnings, tt.notes)
			require.Equal(t, tt.expected, b.Devices)
		})
	}
}
