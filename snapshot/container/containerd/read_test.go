package containerd_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot/container/containerd"
)

var id = strings.Repeat("4c01db0b339c0a1f", 4)

// database is that of a containerd 1.6.20, recorded, in which `ctr` has made a container with the
// labels of nerdctl.
func database(t testing.TB) []byte {
	file, err := os.Open("testdata/containerd-1.6.20.db.gz")
	require.NoError(t, err)
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	require.NoError(t, err)
	data, err := io.ReadAll(unzipped)
	require.NoError(t, err)
	return data
}

func TestRead(t *testing.T) {
	data := database(t)
	found, err := containerd.Read(bytes.NewReader(data), "default", id)
	require.NoError(t, err)
	require.Equal(t, "docker.io/lab/train:1", found.Image)
	require.Equal(t, "shop", found.Labels["nerdctl/name"])
	for _, place := range [][2]string{{"k8s.io", id}, {"default", strings.Repeat("0", 64)}, {"default", ""}, {"", id}} {
		_, err = containerd.Read(bytes.NewReader(data), place[0], place[1])
		require.ErrorIs(t, err, containerd.ErrNotFound, place)
	}
}

func TestReadOfADamagedFile(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"empty":             func([]byte) []byte { return nil },
		"another file":      func(data []byte) []byte { return bytes.Repeat([]byte("x"), len(data)) },
		"cut after a page":  func(data []byte) []byte { return data[:4<<10] },
		"cut in the middle": func(data []byte) []byte { return data[:9<<10] },
		"pages of zeros": func(data []byte) []byte {
			clear(data[8<<10:])
			return data
		},
	} {
		_, err := containerd.Read(bytes.NewReader(change(database(t))), "default", id)
		require.ErrorIs(t, err, containerd.ErrCorrupt, name)
	}
}

// changing is a file of which each look at the last commit may find another state.
type changing struct {
	states [2][]byte
	state  func(look int) int // by the number of the look, from 0
	looks  int
}

func (c *changing) ReadAt(p []byte, at int64) (int, error) {
	if at == 0 {
		c.looks++
	}
	return bytes.NewReader(c.states[c.state(c.looks-1)]).ReadAt(p, at)
}

// TestReadWhileContainerdWrites: what was read before the last commit doesn't count.
func TestReadWhileContainerdWrites(t *testing.T) {
	data := database(t)
	earlier, last := bytes.Clone(data), 0
	if commit := func(page int) uint64 { return binary.NativeEndian.Uint64(data[page+64:]) }; commit(4<<10) > commit(0) {
		last = 4 << 10
	}
	clear(earlier[last : last+100]) // before the last commit, or while it is being written
	file := &changing{states: [2][]byte{earlier, data}, state: func(look int) int { return min(look, 1) }}
	found, err := containerd.Read(file, "default", id)
	require.NoError(t, err)
	require.Equal(t, "docker.io/lab/train:1", found.Image)
	require.Equal(t, 4, file.looks, "it was read twice")
	_, err = containerd.Read(&changing{states: file.states, state: func(look int) int { return look % 2 }}, "default", id)
	require.ErrorIs(t, err, containerd.ErrBusy)
}

func FuzzRead(f *testing.F) {
	data := database(f)
	f.Add(0, []byte{})
	f.Add(4<<10+16, []byte("\xed\xda\x0c\xed"))
	f.Add(40<<10, []byte(strings.Repeat("\x01", 64)))
	f.Fuzz(func(t *testing.T, at int, bytesThere []byte) {
		changed := bytes.Clone(data)
		if at >= 0 && at < len(changed) {
			copy(changed[at:], bytesThere)
		}
		found, err := containerd.Read(bytes.NewReader(changed), "default", id)
		if err == nil {
			require.LessOrEqual(t, len(found.Labels), 1000)
		}
	})
}
