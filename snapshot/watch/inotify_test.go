package watch_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot/watch"
)

// event is one as the kernel writes it: a name is padded with zero bytes.
func event(watch int32, mask uint32, name string) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(watch))
	b = binary.NativeEndian.AppendUint32(b, mask)
	b = binary.NativeEndian.AppendUint32(b, 0) // the cookie
	b = binary.NativeEndian.AppendUint32(b, uint32(len(name)))
	return append(b, name...)
}

func TestEvents(t *testing.T) {
	created := event(1, unix.IN_CREATE, "envs.json\x00\x00\x00\x00\x00\x00\x00")
	for name, row := range map[string]struct {
		read []byte
		want []watch.InotifyEvent
	}{
		"none":          {nil, nil},
		"one":           {created, []watch.InotifyEvent{{Watch: 1, Mask: unix.IN_CREATE, Name: "envs.json"}}},
		"of the folder": {event(2, unix.IN_DELETE_SELF, ""), []watch.InotifyEvent{{Watch: 2, Mask: unix.IN_DELETE_SELF}}},
		"an overflow":   {event(-1, unix.IN_Q_OVERFLOW, ""), []watch.InotifyEvent{{Watch: -1, Mask: unix.IN_Q_OVERFLOW}}},
		"two": {slices.Concat(event(2, unix.IN_OPEN, ""), created), []watch.InotifyEvent{
			{Watch: 2, Mask: unix.IN_OPEN}, {Watch: 1, Mask: unix.IN_CREATE, Name: "envs.json"},
		}},
		"one that is cut off": {slices.Concat(event(2, unix.IN_OPEN, ""), created[:20]), []watch.InotifyEvent{{Watch: 2, Mask: unix.IN_OPEN}}},
		"too short":           {created[:15], nil},
		"too long a name":     {append(event(1, unix.IN_OPEN, "")[:12], 0xff, 0xff, 0xff, 0xff), nil},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, row.want, slices.Collect(watch.InotifyEvents(row.read))) })
	}
}

func FuzzEvents(f *testing.F) {
	f.Add(slices.Concat(event(2, unix.IN_OPEN, ""), event(1, unix.IN_CREATE, "envs.json\x00\x00")))
	f.Fuzz(func(t *testing.T, b []byte) {
		events := slices.Collect(watch.InotifyEvents(b))
		require.LessOrEqual(t, len(events)*unix.SizeofInotifyEvent, len(b))
		for _, e := range events {
			require.NotContains(t, e.Name, "\x00")
		}
	})
}
