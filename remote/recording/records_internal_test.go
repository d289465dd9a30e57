package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// fileOf is a file whose checksums are right, with any records after the header.
func fileOf(t testing.TB, records []byte) []byte {
	var b bytes.Buffer
	w := NewWriter(&b, Header{})
	w.base = time.Unix(1, 0)
	require.NoError(t, w.begin())
	w.buf = append(w.buf, records...)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// FuzzRecords reads records that are not what a Writer writes: what comes of them can be written
// as a snapshot, or is an error.
func FuzzRecords(f *testing.F) {
	var b bytes.Buffer
	w := NewWriter(&b, Header{})
	devices := []snapshot.Device{{Index: 1, TotalMemory: snapshot.MiB(5)}}
	uid := snapshot.UID(7)
	for i := range 3 {
		s := &snapshot.Snapshot{Devices: devices, Processes: []snapshot.Process{
			{PID: snapshot.PID(i/2 + 1), UID: &uid, Usage: []snapshot.DeviceUsage{{Index: 1, Memory: snapshot.MiB(int64(i))}}},
		}}
		in := &Input{Judgement: Judgement{Number: i, Early: i / 2, Time: time.Unix(int64(i), 0), Cluster: snapshot.Cluster{Hosts: []snapshot.Host{{Name: "a", Snapshot: s}}}}}
		require.NoError(f, w.Add(in))
	}
	f.Add(w.buf)
	f.Add([]byte{kindHosts, 2, '[', ']', kindJudged, 0})
	f.Add(append([]byte{kindSnapshot}, binary.AppendUvarint(nil, 1<<60)...))
	f.Fuzz(func(t *testing.T, records []byte) {
		r, err := NewReader(bytes.NewReader(fileOf(t, records)))
		require.NoError(t, err)
		defer r.Close()
		for {
			step, err := r.Next()
			if err != nil {
				require.True(t, errors.Is(err, io.EOF) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrCut), err)
				return
			}
			for _, h := range step.Cluster.Hosts {
				require.Equal(t, h.Err != nil, h.Snapshot == nil)
				if h.Snapshot != nil {
					data, err := snapshot.EncodeNative(h.Snapshot)
					require.NoError(t, err)
					_, err = snapshot.DecodeNative(data)
					require.NoError(t, err)
				}
			}
		}
	})
}

// A part that says that it is large, or becomes large when it is decompressed, takes no memory.
func TestBombs(t *testing.T) {
	bomb := func(length, plain uint32, data []byte) []byte {
		chunk := binary.LittleEndian.AppendUint32(nil, length)
		chunk = binary.LittleEndian.AppendUint32(chunk, plain)
		chunk = append(chunk, 0, 0, 0, 0)
		chunk = append(chunk, data...)
		binary.LittleEndian.PutUint32(chunk[8:], sumOf(chunk))
		return append([]byte(magic), chunk...)
	}
	var zeros chunkWriter
	var compressed bytes.Buffer
	zeros.w = &compressed
	require.NoError(t, zeros.write(make([]byte, maxChunk)))
	data := compressed.Bytes()[len(magic)+chunkHeader:]
	twice := append(bytes.Clone(data), data...) // two frames
	for name, row := range map[string]struct {
		file []byte
		want error
	}{
		"a long part that isn't there":       {bomb(maxChunk, 1, []byte("x")), ErrCut},
		"a part that is too long":            {bomb(maxChunk+1, 1, []byte("x")), ErrDamaged},
		"too much when it is decompressed":   {bomb(uint32(len(twice)), maxChunk, twice), ErrDamaged},
		"more than it says":                  {bomb(uint32(len(data)), 5, data), ErrDamaged},
		"no zstd":                            {bomb(1, 1, []byte("x")), ErrDamaged},
		"a part without anything, endlessly": {append([]byte(magic), make([]byte, 1<<10)...), ErrDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewReader(bytes.NewReader(row.file))
			require.ErrorIs(t, err, row.want)
		})
	}
}
