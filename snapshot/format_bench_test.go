package snapshot_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

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
