package snapshot_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// everything is a snapshot with a value in every field.
func everything(t testing.TB) *snapshot.Snapshot {
	at := proctest.Try(snapshot.ParseDate("20/11/2026 21:10:32")).OK(t)
	uid, gpus, percent, offset, celsius, watts := snapshot.UID(1001), 2, 97, 7200, 63, 555.12
	return &snapshot.Snapshot{
		BootID: "6f2c", UTCOffset: &offset, StateFolder: "8:1/131", Warnings: []string{"a warning"},
		Guard: &snapshot.Guard{Mode: snapshot.GuardUnable, Reason: "no BPF"}, Service: new(true),
		Waits: []snapshot.Wait{{ID: "w1", UID: uid, Username: "alice", GPUs: 2, Suits: []snapshot.DeviceIndex{1}, Seconds: 60, Offered: []snapshot.DeviceIndex{1}, Passed: true}},
		Reservations: []snapshot.Reservation{{
			ID: "r1", UID: uid, Username: "alice", GPUs: 1, From: time.Unix(1e9, 0).UTC(), Until: time.Unix(2e9, 0).UTC(), Made: time.Unix(9e8, 0).UTC(), Known: 3,
			Reason: "a deadline", Ended: new(time.Unix(11e8, 0).UTC()), Lapsed: true,
		}},
		Processes: []snapshot.Process{
			{PID: 7, EID: "1667", Start: 12345, UID: &uid, Name: "python", Command: "python train.py", PrivateCommand: "python private.py", Username: "alice", Container: "0123abcd", ContainerInfo: &snapshot.ContainerInfo{
				Runtime: "docker", Name: "web", Image: "pytorch:24.10", Labels: map[string]string{"team": "vision"}, LabelsCut: true, Unknown: true, Init: true,
				EID: "1667", UID: &uid, User: "alice", Proof: snapshot.ProofRecord,
			}, Inherited: "1667", Usage: []snapshot.DeviceUsage{{Index: 1, Memory: snapshot.MiB(5), Type: snapshot.TypeComputeGraphics}}},
			{PID: 9, Protected: "nvidia-cuda-mps-server", UserUnknown: true, Usage: []snapshot.DeviceUsage{{Index: 1}}},
			{PID: 8, EnvUnknown: true, EnvOverwritten: true, Usage: []snapshot.DeviceUsage{{Index: 0}}},
		},
		Environments: []snapshot.Environment{{
			EID: "1667", UID: uid, Creation: at, Username: "alice", PIDs: []snapshot.PID{3}, KernelIDs: []string{"k"}, OwnerMismatch: true, Since: 7,
			Config: snapshot.EnvConfig{Name: "Norwegian Wood", GPUMemory: snapshot.MustMemory("4g"), GPUs: &gpus},
		}},
		Devices: []snapshot.Device{{
			Index: 1, TotalMemory: snapshot.MiB(81559), UUID: "GPU-1", Name: "H100", Unidentified: true, Display: new(true), UsedMemory: snapshot.MiB(5), Utilization: &percent, Temperature: &celsius, Power: &watts, PowerLimit: &watts,
			Instances: []snapshot.Instance{{UUID: "MIG-1", Profile: "1g.10gb", Total: snapshot.MiB(9984), Pool: "7"}, {UUID: "MIG-GPU-1/2/0"}}, ProcessesUnknown: true,
			Attachments: []snapshot.Attachment{{EID: "1667", GPUMemory: snapshot.MustMemory("4g"), Time: at, Since: 8}},
		}, {Index: 2, Failed: true, Problem: "it is lost", Attachments: []snapshot.Attachment{}}, {Index: 3, Unified: true, Attachments: []snapshot.Attachment{}}},
	}
}

func TestNativeCarriesEverything(t *testing.T) {
	want := everything(t)
	require.Equal(t, want, proctest.Try(snapshot.DecodeNative(proctest.Try(snapshot.EncodeNative(want)).OK(t))).OK(t))
}

// TestUnknownWaitsStayUnknown: only a host that says so has no waits.
func TestUnknownWaitsStayUnknown(t *testing.T) {
	const rest = `"service":true,"processes":[],"envs":[],"devices":[]}`
	for text, want := range map[string][]snapshot.Wait{
		`{`: nil, `{"waits":null,`: nil, `{"waits":[],`: {}, `{"waits":[{"id":"","gpus":1},{"id":"w","gpus":0}],`: {},
		`{"waits":[{"id":"w","gpus":1},{"id":"w","gpus":2}],`: {{ID: "w", GPUs: 1}},
	} {
		s := proctest.Try(snapshot.DecodeNative([]byte(text+rest))).OK(t, text)
		require.Equal(t, want, s.Waits, text)
		require.Nil(t, s.Reservations, text)
	}
	s := proctest.Try(snapshot.DecodeNative([]byte(`{"service":false,"waits":[],"reservations":[],"processes":[],"envs":[],"devices":[]}`))).OK(t)
	require.True(t, s.Waits == nil && s.Reservations == nil, "where users write the state they could make up any")
}

// What a host doesn't say about its guard, or what only a later version understands, is unknown: not off.
func TestTheGuardOfAHost(t *testing.T) {
	const rest = `"processes":[],"envs":[],"devices":[]}`
	for text, want := range map[string]*snapshot.Guard{
		`{`: nil, `{"guard":null,`: nil, `{"guard":{},`: nil, `{"guard":{"mode":"dance","reason":"x"},`: nil, `{"guard":{"mode":""},`: nil,
		`{"guard":{"mode":"off"},`:                                              {Mode: snapshot.GuardOff},
		`{"guard":{"mode":"unable","reason":"no\u001b[2J\nBPF"},`:               {Mode: snapshot.GuardUnable, Reason: `no\x1b[2J BPF`},
		`{"guard":{"mode":"off","reason":"` + strings.Repeat("x", 5000) + `"},`: {Mode: snapshot.GuardOff, Reason: strings.Repeat("x", 1024)},
	} {
		got := proctest.Try(snapshot.DecodeNative([]byte(text+rest))).OK(t, text)
		require.Equal(t, want, got.Guard, text)
		require.Nil(t, got.Service)
	}
}

// Users of a host can cause any number of warnings. The rest of its snapshot must still be read.
func TestOnlyTheWarningsAreDroppedIfThereAreTooMany(t *testing.T) {
	loud := everything(t)
	loud.Warnings = make([]string, 100_000)
	data := proctest.Try(snapshot.EncodeNative(loud)).OK(t)
	got := proctest.Try(snapshot.DecodeNative(data)).OK(t)
	require.Equal(t, loud.Processes, got.Processes)
	require.Len(t, got.Warnings, 257)
	require.Equal(t, "99744 more warnings, which are not shown", got.Warnings[256])
}

func TestNativeRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                ``,
		"a part is missing":      `{"processes":[],"envs":[]}`,
		"a null part":            `{"processes":null,"envs":[],"devices":[]}`,
		"a part of another type": `{"processes":5,"envs":[],"devices":[]}`,
	} {
		require.ErrorIs(t, proctest.Try(snapshot.DecodeNative([]byte(text))).Err, snapshot.ErrInvalid, name)
	}
}

// TestOddNativeValues: they are unknown, never 0, and all else is there.
func TestOddNativeValues(t *testing.T) {
	data := proctest.Try(snapshot.EncodeNative(everything(t))).OK(t)
	data = regexp.MustCompile(`,"colons":\d+}$`).ReplaceAll(data, []byte("}")) // as older hosts write it
	for _, row := range []struct {
		what, part, with string
		left             func(*snapshot.Snapshot) // from everything
	}{
		{"PID 0", `"pid":7,`, `"pid":0,`, func(s *snapshot.Snapshot) { s.Processes = s.Processes[1:] }},
		{"no PID", `"pid":7,`, ``, func(s *snapshot.Snapshot) { s.Processes = s.Processes[1:] }},
		{"a PID twice", `"pid":9,`, `"pid":7,`, func(s *snapshot.Snapshot) { s.Processes = slices.Delete(s.Processes, 1, 2) }},
		{"a device below 0", `"index":1,"gpu_memory":"5mi"`, `"index":-1`, func(s *snapshot.Snapshot) { s.Processes[0].Usage = []snapshot.DeviceUsage{} }},
		{"no device", `"index":1,"gpu_memory":"5mi"`, `"gpu_memory":"5mi"`, func(s *snapshot.Snapshot) { s.Processes[0].Usage = []snapshot.DeviceUsage{} }},
		{"a bad memory", `"gpu_memory":"5mi"`, `"gpu_memory":"much"`, func(s *snapshot.Snapshot) { s.Processes[0].Usage[0].Memory = snapshot.Memory{} }},
		{"a control character", `"command":"python train.py"`, `"command":"\u001b[2J"`, func(s *snapshot.Snapshot) { s.Processes[0].Command = "" }},
		{"a text as a uid", `"uid":1001,"name"`, `"uid":"alice","name"`, func(s *snapshot.Snapshot) { s.Processes[0].UID = nil }},
		{"a label that is too long", `"team":"vision"`, `"team":"` + strings.Repeat("x", 300) + `"`, func(s *snapshot.Snapshot) { s.Processes[0].ContainerInfo = &snapshot.ContainerInfo{Unknown: true} }},
		{"an environment without an id", `"eid":"1667","creation"`, `"eid":"","creation"`, func(s *snapshot.Snapshot) { s.Environments = s.Environments[:0] }},
		{"no date", `"creation":"20/11/2026 21:10:32"`, `"creation":""`, func(s *snapshot.Snapshot) { s.Environments[0].Creation = snapshot.Date{} }},
		{"no uid", `,"uid":1001}],"devices"`, `}],"devices"`, func(s *snapshot.Snapshot) {
			s.Environments[0].UID, s.Environments[0].Username = snapshot.NoUID, ""
		}},
		{"no index", `"index":1,"attachments"`, `"attachments"`, func(s *snapshot.Snapshot) { s.Devices = s.Devices[1:] }},
		{"an offset of no zone", `"utc_offset_s":7200`, `"utc_offset_s":90000`, func(s *snapshot.Snapshot) { s.UTCOffset = nil }},
		{"150 per cent", `"utilization":97`, `"utilization":150`, func(s *snapshot.Snapshot) { s.Devices[0].Utilization = nil }},
		{"a text as a utilization", `"utilization":97`, `"utilization":"much"`, func(s *snapshot.Snapshot) { s.Devices[0].Utilization = nil }},
		{"below absolute zero", `"temperature":63`, `"temperature":-274`, func(s *snapshot.Snapshot) { s.Devices[0].Temperature = nil }},
		{"a megawatt and more", `"power":555.12`, `"power":1000000.5`, func(s *snapshot.Snapshot) { s.Devices[0].Power = nil }},
		{"no power limit", `"power_limit":555.12`, `"power_limit":-1`, func(s *snapshot.Snapshot) { s.Devices[0].PowerLimit = nil }},
		{"negative power", `"power":555.12`, `"power":-1`, func(s *snapshot.Snapshot) { s.Devices[0].Power = nil }},
		{"an instance of no GPU", `"uuid":"MIG-1"`, `"uuid":"\u0007"`, func(s *snapshot.Snapshot) { s.Devices[0].Instances = s.Devices[0].Instances[1:] }},
	} {
		t.Run(row.what, func(t *testing.T) {
			require.Contains(t, string(data), row.part)
			got := proctest.Try(snapshot.DecodeNative([]byte(strings.Replace(string(data), row.part, row.with, 1)))).OK(t)
			require.Len(t, got.Warnings, 2, "%q", got.Warnings)
			want := everything(t)
			row.left(want)
			got.Warnings = want.Warnings
			require.Equal(t, want, got)
		})
	}
	_, err := snapshot.DecodeNativeProcesses([]byte(`[{"pid":7,"used_gpu_memory":[{"gpu_memory":"5mi"}]}]`))
	require.ErrorContains(t, err, "process 7: usage no. 1 of the list can't be read and is left out: its index is missing", "an order is refused")
}

// FuzzDecodeNative: an accepted snapshot is the same after it is written and read again.
func FuzzDecodeNative(f *testing.F) {
	data := proctest.Try(snapshot.EncodeNative(everything(f))).OK(f)
	f.Add(data)
	full := proctest.ReadFile(f, recorded+"/wire/usage-snapshot-full.json")
	f.Add(full)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := snapshot.DecodeNative(data)
		if err != nil {
			return
		}
		again := proctest.Try(snapshot.EncodeNative(s)).OK(t)
		require.Equal(t, again, proctest.Try(snapshot.EncodeNative(proctest.Try(snapshot.DecodeNative(again)).OK(t))).OK(t))
	})
}

// Escaping would make a text of a user up to six times as long.
func TestHTMLIsNotEscaped(t *testing.T) {
	name := strings.Repeat("<&>", 80)
	s := &snapshot.Snapshot{Environments: []snapshot.Environment{{EID: "1", Config: snapshot.EnvConfig{Name: name}}}, Processes: []snapshot.Process{{PID: 1, Command: name}}}
	data := proctest.Try(snapshot.EncodeNative(s)).OK(t)
	require.Equal(t, 2, strings.Count(string(data), name))
	data = proctest.Try(snapshot.Marshal(map[string]json.RawMessage{"snapshot": data})).OK(t)
	require.Equal(t, 2, strings.Count(string(data), name), "nor in an answer that contains it")
	data = proctest.Try(snapshot.EncodeNativeProcesses(s.Processes)).OK(t)
	require.Contains(t, string(data), name)
}

// A host of an earlier version lets shells use indices after GPUs were renumbered: what is attached there is unknown.
func TestFormerIndicesOfEarlierVersions(t *testing.T) {
	s, err := snapshot.DecodeNative([]byte(`{"processes":[],"envs":[{"eid":"1","uid":7,"creation":"20/11/2026 21:10:33","username":"x",` +
		`"config":{"name":null,"gpu_memory":null,"gpus":null},"pids":[1],"kernel_ids":[],"former":[{"device":1,"until":9}]}],` +
		`"devices":[{"index":0,"total_memory":"100mi","attachments":[]},{"index":1,"total_memory":"100mi","attachments":[]}]}`))
	require.NoError(t, err)
	require.False(t, s.Device(0).Unidentified)
	require.True(t, s.Device(1).Unidentified)
}

// TestHostileBookings: what no honest host has is refused or left out when a snapshot is read.
func TestHostileBookings(t *testing.T) {
	read := func(s *snapshot.Snapshot) (*snapshot.Snapshot, error) {
		s.Service = new(true)
		data := proctest.Try(snapshot.EncodeNative(s)).OK(t)
		return snapshot.DecodeNative(data)
	}
	year := func(year int) time.Time { return time.Date(year, 1, 1, 0, 0, 0, 0, time.FixedZone("", -12*3600)) }
	book := func(id string, from, until int) snapshot.Reservation {
		return snapshot.Reservation{ID: id, UID: 1, GPUs: 1, From: year(from), Until: year(until), Reason: strings.Repeat("r", 4000)}
	}
	s, err := read(&snapshot.Snapshot{
		Reservations: []snapshot.Reservation{book("a", 0, 2027), book("b", 2026, 9999), book("c", 2026, 2027)},
		Waits: []snapshot.Wait{
			{ID: "w", GPUs: 1, Seconds: -5}, {ID: "x", GPUs: 1, Seconds: 1 << 62}, {ID: "y", GPUs: 1, Suits: make([]snapshot.DeviceIndex, 2000)},
		},
	})
	require.NoError(t, err)
	require.Len(t, s.Reservations, 1)
	require.Len(t, s.Reservations[0].Reason, snapshot.MaxBookingReason)
	require.Len(t, s.Waits, 2)
	require.Zero(t, s.Waits[0].Seconds)
	require.Positive(t, time.Duration(s.Waits[1].Seconds)*time.Second)
	many := &snapshot.Snapshot{}
	for i := range snapshot.MaxReservations + 1 {
		many.Reservations = append(many.Reservations, book(fmt.Sprint(i), 2026, 2027))
	}
	require.ErrorIs(t, proctest.Try(read(many)).Err, snapshot.ErrInvalid, "each is judged with all others")
}
