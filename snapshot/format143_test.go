package snapshot_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

const recorded = "testdata/genv-1.4.3"

// recode decodes a document by the name of its file and encodes it again.
func recode(name string, data []byte) ([]byte, error) {
	switch {
	case strings.Contains(name, "full"):
		s, err := snapshot.DecodeSnapshot(data)
		if err != nil {
			return nil, err
		}
		return snapshot.EncodeSnapshot(s)
	case strings.Contains(name, "processes"):
		p, err := snapshot.DecodeProcesses(data)
		if err != nil {
			return nil, err
		}
		return snapshot.EncodeProcesses(p)
	case strings.Contains(name, "envs"):
		e, err := snapshot.DecodeEnvironments(data)
		if err != nil {
			return nil, err
		}
		return snapshot.EncodeEnvironments(e)
	default:
		d, err := snapshot.DecodeDevices(data)
		if err != nil {
			return nil, err
		}
		return snapshot.EncodeDevices(d)
	}
}

func TestRecordedDocumentsSurviveARoundTrip(t *testing.T) {
	for _, name := range []string{
		"wire/usage-snapshot-full.json", "wire/usage-snapshot-envs.json", "wire/usage-snapshot-devices.json",
		"wire/usage-snapshot-processes.json", "state/envs.json", "state/devices.json",
	} {
		t.Run(name, func(t *testing.T) {
			want := proctest.ReadFile(t, filepath.Join(recorded, name))
			require.Equal(t, strings.TrimSuffix(string(want), "\n"), string(proctest.Try(recode(filepath.Base(name), want)).OK(t)))
		})
	}
}

// crowded is a host with 8 devices, 8 environments and 64 processes.
func crowded(b *testing.B) *snapshot.Snapshot {
	one := everything(b)
	s := &snapshot.Snapshot{BootID: one.BootID}
	for i := range 64 {
		p := one.Processes[0]
		p.PID += snapshot.PID(i)
		s.Processes = append(s.Processes, p)
	}
	for i := range 8 {
		e, d := one.Environments[0], one.Devices[0]
		e.EID = snapshot.EnvID(rune('a' + i))
		d.Index = snapshot.DeviceIndex(i)
		s.Environments, s.Devices = append(s.Environments, e), append(s.Devices, d)
	}
	return s
}

func BenchmarkCodec(b *testing.B) {
	s := crowded(b)
	for name, format := range map[string]struct {
		encode func(*snapshot.Snapshot) ([]byte, error)
		decode func([]byte) (*snapshot.Snapshot, error)
	}{
		"native": {snapshot.EncodeNative, snapshot.DecodeNative}, "1.4.3": {snapshot.EncodeSnapshot, snapshot.DecodeSnapshot},
	} {
		data := proctest.Try(format.encode(s)).OK(b)
		for what, run := range map[string]func() error{
			"encode": func() error { _, err := format.encode(s); return err },
			"decode": func() error { _, err := format.decode(data); return err },
		} {
			b.Run(name+"/"+what, func(b *testing.B) {
				b.SetBytes(int64(len(data)))
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, run())
				}
			})
		}
	}
}

// 1.4.3 crashes on an unknown key, and acts on a value even if it is a guess.
func TestWhatTheFormatCannotExpressIsOmitted(t *testing.T) {
	plain := proctest.Try(snapshot.DecodeSnapshot(document(goodProcess, goodEnv, goodDevice))).OK(t)
	want := proctest.Try(snapshot.EncodeSnapshot(plain)).OK(t)

	uid, busy, watts := snapshot.UID(1002), 97, 350.5
	rich := *plain
	rich.BootID, rich.Warnings = "6f1f5d0b", []string{"a warning"}
	p := plain.Processes[0]
	p.Start, p.UID, p.Name = 500, &uid, "python3"
	envUnknown := snapshot.Process{PID: 6, EnvUnknown: true, Usage: p.Usage}
	memoryUnknown := snapshot.Process{PID: 7, EID: "2020", Usage: []snapshot.DeviceUsage{{Index: 0}}}
	withoutUsage := snapshot.Process{PID: 8, EID: "2020"}
	rich.Processes = []snapshot.Process{p, envUnknown, memoryUnknown, withoutUsage}
	e := plain.Environments[0]
	e.OwnerMismatch = true
	rich.Environments = []snapshot.Environment{e}
	d := plain.Devices[0]
	d.UUID, d.Name, d.UsedMemory, d.Utilization = "GPU-0", "H100", snapshot.MiB(5), &busy
	d.Temperature, d.Power = &busy, &watts
	rich.Devices = []snapshot.Device{d, {Index: 1, UUID: "GPU-1"}}

	got := proctest.Try(snapshot.EncodeSnapshot(&rich)).OK(t)
	require.Equal(t, string(want), string(got))
	for _, p := range rich.Processes[1:] {
		require.False(t, p.Expressible())
	}
	require.True(t, p.Expressible())

	rich.Devices[0].Failed = true // 1.4.3 would judge what is on it
	got = proctest.Try(snapshot.EncodeSnapshot(&rich)).OK(t)
	spared := proctest.Try(snapshot.DecodeSnapshot(got)).OK(t)
	require.Empty(t, spared.Processes)
	require.Equal(t, plain.Devices, spared.Devices)
	require.Len(t, p.Usage, 1, "the snapshot itself is as it was")
}

func TestAnEmptySnapshotIsWrittenAs143WritesIt(t *testing.T) {
	got := proctest.Try(snapshot.EncodeSnapshot(&snapshot.Snapshot{})).OK(t)
	require.Equal(t, `{
  "processes": {
    "processes": []
  },
  "envs": {
    "envs": []
  },
  "devices": {
    "devices": []
  }
}`, string(got))
}

// What Python's json.dumps writes for the same text.
func TestTextIsEscapedAsPythonEscapesIt(t *testing.T) {
	for text, want := range map[string]string{
		"plain":          `"plain"`,
		`"quoted" \ it`:  `"\"quoted\" \\ it"`,
		"<b>&amp;":       `"<b>&amp;"`,
		"é":              `"\u00e9"`,
		"日本":             `"\u65e5\u672c"`,
		"😀":              `"\ud83d\ude00"`,
		"\u2028":         `"\u2028"`,
		"\x7f":           `"\u007f"`,
		"a/b":            `"a/b"`,
		"\b\f\n\r\t\x01": `"\b\f\n\r\t\u0001"`,
		"\ufffd":         `"\ufffd"`,
	} {
		got := proctest.Try(snapshot.EncodeEnvironments([]snapshot.Environment{{EID: "1", Config: snapshot.EnvConfig{Name: text}}})).OK(t)
		require.Contains(t, string(got), `"name": `+want+",\n")
	}
}

func FuzzDecodeSnapshot(f *testing.F) {
	for _, name := range []string{"wire/usage-snapshot-full.json"} {
		data := proctest.ReadFile(f, filepath.Join(recorded, name))
		f.Add(data)
	}
	f.Add(document(goodProcess, goodEnv, goodDevice))
	f.Add(document(strings.ReplaceAll(goodProcess, `"7mi"`, "null"), "", ""))
	f.Add([]byte(`{"processes": null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := snapshot.DecodeSnapshot(data)
		if err != nil {
			require.ErrorIs(t, err, snapshot.ErrInvalid)
			require.Nil(t, s)
			return
		}
		requireStable(t, s)
	})
}

// requireStable requires that a decoded snapshot is the same after another round trip,
// except for the processes that the format cannot express.
func requireStable(t *testing.T, s *snapshot.Snapshot) {
	t.Helper()
	kept := s.Processes[:0:0]
	for _, p := range s.Processes {
		if p.Expressible() {
			kept = append(kept, p)
		}
	}
	text := proctest.Try(snapshot.EncodeSnapshot(s)).OK(t)
	again := proctest.Try(snapshot.DecodeSnapshot(text)).OK(t)
	require.Equal(t, len(kept), len(again.Processes))
	require.Equal(t, s.Environments, again.Environments)
	require.Equal(t, s.Devices, again.Devices)
	require.Equal(t, string(text), string(proctest.Try(snapshot.EncodeSnapshot(again)).OK(t)))
}

func FuzzDecodeState(f *testing.F) {
	for _, name := range []string{"state/envs.json", "state/devices.json", "wire/usage-snapshot-processes.json"} {
		data := proctest.ReadFile(f, filepath.Join(recorded, name))
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range []string{"envs", "devices", "processes"} {
			first, err := recode(kind, data)
			if err != nil {
				require.ErrorIs(t, err, snapshot.ErrInvalid)
				continue
			}
			require.Equal(t, string(first), string(proctest.Try(recode(kind, first)).OK(t)))
		}
	})
}
