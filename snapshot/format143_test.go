package snapshot_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
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
			want, err := os.ReadFile(filepath.Join(recorded, name))
			require.NoError(t, err)
			got, err := recode(filepath.Base(name), want)
			require.NoError(t, err)
			require.Equal(t, strings.TrimSuffix(string(want), "\n"), string(got))
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

func BenchmarkNative(b *testing.B) {
	s := crowded(b)
	data, err := snapshot.EncodeNative(s)
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			_, err := snapshot.EncodeNative(s)
			require.NoError(b, err)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			_, err := snapshot.DecodeNative(data)
			require.NoError(b, err)
		}
	})
}

// BenchmarkCodec is the same in the 1.4.3 format.
func BenchmarkCodec(b *testing.B) {
	s := crowded(b)
	data, err := snapshot.EncodeSnapshot(s)
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			_, err := snapshot.EncodeSnapshot(s)
			require.NoError(b, err)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			_, err := snapshot.DecodeSnapshot(data)
			require.NoError(b, err)
		}
	})
}
