package snapshot_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// everything is a snapshot with a value in every field.
func everything(t testing.TB) *snapshot.Snapshot {
	at, err := snapshot.ParseDate("20/11/2026 21:10:32")
	require.NoError(t, err)
	service := true
	uid, gpus, percent, offset, celsius, watts := snapshot.UID(1001), 2, 97, 7200, 63, 555.12
	return &snapshot.Snapshot{
		BootID: "6f2c", UTCOffset: &offset, MachineID: "9c1e", StateFolder: "8:1/131", Warnings: []string{"a warning"},
		Guard: &snapshot.Guard{Mode: snapshot.GuardUnable, Reason: "no BPF"}, Service: &service,
		Processes: []snapshot.Process{
			{PID: 7, EID: "1667", Start: 12345, UID: &uid, Name: "python", Command: "python train.py", Username: "alice", Container: "0123abcd", ContainerInfo: &snapshot.ContainerInfo{
				Runtime: "docker", Name: "web", Image: "pytorch:24.10", Labels: map[string]string{"team": "vision"}, LabelsCut: true, Unknown: true, Init: true,
				EID: "1667", UID: &uid, User: "alice", Proof: snapshot.ProofRecord,
			}, Inherited: "1667", Usage: []snapshot.DeviceUsage{{Index: 1, Memory: snapshot.MiB(5)}}},
			{PID: 9, Protected: "nvidia-cuda-mps-server", UserUnknown: true, Usage: []snapshot.DeviceUsage{{Index: 1}}},
			{PID: 8, EnvUnknown: true, EnvOverwritten: true, Usage: []snapshot.DeviceUsage{{Index: 0}}},
		},
		Environments: []snapshot.Environment{{
			EID: "1667", UID: uid, Creation: at, Username: "alice", PIDs: []snapshot.PID{3}, KernelIDs: []string{"k"}, OwnerMismatch: true, Since: 7, Former: []snapshot.FormerIndex{{Index: 3, Until: 9}},
			Config: snapshot.EnvConfig{Name: "Norwegian Wood", GPUMemory: snapshot.MustMemory("4g"), GPUs: &gpus},
		}},
		Devices: []snapshot.Device{{
			Index: 1, TotalMemory: snapshot.MiB(81559), UUID: "GPU-1", Name: "H100", Unidentified: true, UsedMemory: snapshot.MiB(5), Utilization: &percent, Temperature: &celsius, Power: &watts,
			Instances: []snapshot.Instance{{UUID: "MIG-1", Profile: "1g.10gb", Total: snapshot.MiB(9984), Pool: "7"}, {UUID: "MIG-GPU-1/2/0"}}, ProcessesUnknown: true,
			Attachments: []snapshot.Attachment{{EID: "1667", GPUMemory: snapshot.MustMemory("4g"), Time: at, Since: 8}},
		}, {Index: 2, Failed: true, Problem: "it is lost", Attachments: []snapshot.Attachment{}}, {Index: 3, Unified: true, Attachments: []snapshot.Attachment{}}},
	}
}

func TestNativeCarriesEverything(t *testing.T) {
	want := everything(t)
	data, err := snapshot.EncodeNative(want)
	require.NoError(t, err)
	got, err := snapshot.DecodeNative(data)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// What a host doesn't say about its guard, or what only a later version understands, is
// unknown: not off.
func TestTheGuardOfAHost(t *testing.T) {
	const rest = `"processes":[],"envs":[],"devices":[]}`
	for text, want := range map[string]*snapshot.Guard{
		`{`: nil, `{"guard":null,`: nil, `{"guard":{},`: nil, `{"guard":{"mode":"dance","reason":"x"},`: nil, `{"guard":{"mode":""},`: nil,
		`{"guard":{"mode":"off"},`:                                              {Mode: snapshot.GuardOff},
		`{"guard":{"mode":"unable","reason":"no\u001b[2J\nBPF"},`:               {Mode: snapshot.GuardUnable, Reason: `no\x1b[2J BPF`},
		`{"guard":{"mode":"off","reason":"` + strings.Repeat("x", 5000) + `"},`: {Mode: snapshot.GuardOff, Reason: strings.Repeat("x", 1024)},
	} {
		got, err := snapshot.DecodeNative([]byte(text + rest))
		require.NoError(t, err, text)
		require.Equal(t, want, got.Guard, text)
		require.Nil(t, got.Service)
	}
}

// Users of a host can cause any number of warnings. The rest of its snapshot must still
// be read.
func TestOnlyTheWarningsAreDroppedIfThereAreTooMany(t *testing.T) {
	loud := everything(t)
	loud.Warnings = make([]string, 100_000)
	data, err := snapshot.EncodeNative(loud)
	require.NoError(t, err)
	got, err := snapshot.DecodeNative(data)
	require.NoError(t, err)
	require.Equal(t, loud.Processes, got.Processes)
	require.Len(t, got.Warnings, 257)
	require.Equal(t, "99744 more warnings, which are not shown", got.Warnings[256])
}

func TestNativeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":              ``,
		"a part is missing":    `{"processes":[],"envs":[]}`,
		"a null part":          `{"processes":null,"envs":[],"devices":[]}`,
		"PID 0":                `{"processes":[{"pid":0,"used_gpu_memory":[]}],"envs":[],"devices":[]}`,
		"a PID twice":          `{"processes":[{"pid":7,"used_gpu_memory":[]},{"pid":7,"used_gpu_memory":[]}],"envs":[],"devices":[]}`,
		"a device below 0":     `{"processes":[{"pid":7,"used_gpu_memory":[{"index":-1}]}],"envs":[],"devices":[]}`,
		"a bad memory":         `{"processes":[{"pid":7,"used_gpu_memory":[{"index":0,"gpu_memory":"much"}]}],"envs":[],"devices":[]}`,
		"a control character":  `{"processes":[{"pid":7,"name":"\u001b[2J","used_gpu_memory":[]}],"envs":[],"devices":[]}`,
		"no id":                `{"processes":[],"envs":[{"eid":"","uid":1001,"creation":"20/11/2026 21:10:32"}],"devices":[]}`,
		"no date":              `{"processes":[],"envs":[{"eid":"1","uid":1001,"creation":""}],"devices":[]}`,
		"an offset of no zone": `{"utc_offset_s":90000,"processes":[],"envs":[],"devices":[]}`,
		"150 per cent":         `{"processes":[],"envs":[],"devices":[{"index":0,"utilization":150}]}`,
		"below absolute zero":  `{"processes":[],"envs":[],"devices":[{"index":0,"temperature":-274}]}`,
		"a megawatt and more":  `{"processes":[],"envs":[],"devices":[{"index":0,"power":1000000.5}]}`,
		"negative power":       `{"processes":[],"envs":[],"devices":[{"index":0,"power":-1}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := snapshot.DecodeNative([]byte(text))
			require.ErrorIs(t, err, snapshot.ErrInvalid)
		})
	}
}

// An absent number is not 0, which is root, or the first device.
func TestNativeRefusesAbsentNumbers(t *testing.T) {
	data, err := snapshot.EncodeNative(everything(t))
	require.NoError(t, err)
	for name, number := range map[string]string{
		"the uid of an environment": `"uid":1001,"creation"`,
		"the index of a usage":      `"index":1,"gpu_memory"`,
		"the index of a device":     `"index":1,"attachments"`,
		"the PID of a process":      `"pid":7,"used_gpu_memory"`,
	} {
		key, next, _ := strings.Cut(number, ",")
		key, _, _ = strings.Cut(key, ":")
		for _, instead := range []string{next, key + ":null," + next} {
			require.Contains(t, string(data), number)
			s, err := snapshot.DecodeNative([]byte(strings.Replace(string(data), number, instead, 1)))
			require.ErrorIs(t, err, snapshot.ErrInvalid, "%s: %s", name, instead)
			require.Nil(t, s)
		}
	}
	_, err = snapshot.DecodeNativeProcesses([]byte(`[{"pid":7,"used_gpu_memory":[{"gpu_memory":"5mi"}]}]`))
	require.ErrorContains(t, err, "usage 0: not a valid genv document: index is missing")
}

// FuzzDecodeNative: an accepted snapshot is the same after it is written and read again.
func FuzzDecodeNative(f *testing.F) {
	data, err := snapshot.EncodeNative(everything(f))
	require.NoError(f, err)
	f.Add(data)
	full, err := os.ReadFile(recorded + "/wire/usage-snapshot-full.json")
	require.NoError(f, err)
	f.Add(full)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := snapshot.DecodeNative(data)
		if err != nil {
			return
		}
		again, err := snapshot.EncodeNative(s)
		require.NoError(t, err)
		back, err := snapshot.DecodeNative(again)
		require.NoError(t, err)
		require.Equal(t, again, must(snapshot.EncodeNative(back)))
	})
}

func must(data []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return data
}

// Escaping would make a text of a user up to six times as long.
func TestHTMLIsNotEscaped(t *testing.T) {
	name := strings.Repeat("<&>", 80)
	s := &snapshot.Snapshot{Environments: []snapshot.Environment{{EID: "1", Config: snapshot.EnvConfig{Name: name}}}, Processes: []snapshot.Process{{PID: 1, Command: name}}}
	data, err := snapshot.EncodeNative(s)
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(data), name))
	data, err = snapshot.Marshal(map[string]json.RawMessage{"snapshot": data})
	require.NoError(t, err)
	require.Equal(t, 2, strings.Count(string(data), name), "nor in an answer that contains it")
	data, err = snapshot.EncodeNativeProcesses(s.Processes)
	require.NoError(t, err)
	require.Contains(t, string(data), name)
}

func TestAnInvalidIDIsNotAClaim(t *testing.T) {
	require.NotEmpty(t, snapshot.Claim(strings.Repeat("x", 256)))
	require.Empty(t, snapshot.Claim(strings.Repeat("x", 257)))
}
