package state

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
)

// gpuHost is a host with root's looks at it. Its devices.json survives each look alone.
type gpuHost struct {
	*testing.T
	looks   Looks
	envs    []snapshot.Environment
	devices []snapshot.Device // without what only the note has
	start   snapshot.StartTime
}

// look is one of root's, at the GPUs "0:a 1:b", where nvidia-smi says nothing of "2:?", or at the
// files alone.
func (h *gpuHost) look(gpus string) (*Files, string) {
	f := &Files{Environments: slices.Clone(h.envs), KeepsNote: true}
	for _, d := range h.devices {
		d.UUID, d.Attachments = "", slices.Clone(d.Attachments)
		for i := range d.Attachments {
			d.Attachments[i].Since = 0
		}
		f.Devices = append(f.Devices, d)
	}
	h.looks.Apply(f)
	f.RemoveEmpty(nil)
	var found []snapshot.Device
	for _, word := range strings.Fields(gpus) {
		d := snapshot.Device{TotalMemory: snapshot.MiB(1000)}
		index, uuid, _ := strings.Cut(word, ":")
		_, err := fmt.Sscan(index, &d.Index)
		require.NoError(h, err)
		d.UUID = snapshot.GPUUUID(strings.Trim(uuid, "?"))
		found = append(found, d)
	}
	if gpus != "" {
		f.MergeDevices(found)
	}
	h.start += 1000
	h.looks = h.looks.Look(f, Moment{Wall: time.Unix(int64(h.start/100), 0).UTC(), Start: h.start})
	h.devices, h.envs = f.Devices, f.Environments
	return f, attachedText(f)
}

// attachedText is what is attached, as "0:a=1", which indices environments may use besides, as
// "1~0", and what is gone, as "c-2".
func attachedText(f *Files) string {
	var list []string
	for _, d := range f.Devices {
		for _, a := range d.Attachments {
			list = append(list, fmt.Sprintf("%d:%s=%s", d.Index, d.UUID, a.EID))
		}
	}
	for _, e := range f.Environments {
		for _, o := range e.Former {
			list = append(list, fmt.Sprintf("%s~%d", e.EID, o.Index))
		}
	}
	for _, g := range f.Gone {
		list = append(list, fmt.Sprintf("%s-%s", g.UUID, g.EID))
	}
	return strings.Join(list, " ")
}

// attach is what a user does, by the index.
func (h *gpuHost) attach(eid snapshot.EnvID, index snapshot.DeviceIndex) {
	f := &Files{Devices: h.devices}
	_, err := f.Attach(AttachRequest{EID: eid, Indices: []snapshot.DeviceIndex{index}, OverSubscribe: true, At: snapshot.DateOf(time.Unix(int64(h.start/100)+3, 0).UTC())})
	require.NoError(h, err)
	h.devices = f.Devices
}

func newGPUHost(t *testing.T) *gpuHost {
	h := &gpuHost{T: t, start: 1000}
	for _, eid := range []snapshot.EnvID{"1", "2"} {
		h.envs = append(h.envs, snapshot.Environment{EID: eid, PIDs: []snapshot.PID{1}})
	}
	return h
}

func TestAttachmentsFollowTheirGPUs(t *testing.T) {
	const all = "0:a 1:b 2:c 3:d"
	for name, row := range map[string]struct {
		before []string // looks after which 1 is attached to device 0, and 2 to device 1
		after  []string
		want   []string
	}{
		"nothing changes":                     {[]string{all}, []string{all, all}, []string{"0:a=1 1:b=2", "0:a=1 1:b=2"}},
		"GPU 0 leaves and comes back":         {[]string{all}, []string{"0:b 1:c 2:d", all}, []string{"0:b=2 1~0 2~1 a-1", "0:a=1 1:b=2 1~1 2~1 2~2 2~0"}},
		"GPU 0 is another one for good":       {[]string{all}, []string{"0:x 1:b 2:c 3:d"}, []string{"1:b=2 1~0 a-1"}},
		"a GPU joins below":                   {[]string{"0:a 1:b"}, []string{"0:x 1:a 2:b"}, []string{"1:a=1 2:b=2 1~0 2~1"}},
		"a GPU joins above":                   {[]string{"0:a 1:b"}, []string{"0:a 1:b 2:x"}, []string{"0:a=1 1:b=2"}},
		"two change places":                   {[]string{all}, []string{"0:b 1:a 2:c 3:d"}, []string{"0:b=2 1:a=1 1~0 2~1"}},
		"the last one leaves, a gap":          {[]string{"0:x 1:b"}, []string{"0:x"}, []string{"0:x=1 1:b=2"}},
		"one fails in its place":              {[]string{all}, []string{"0: 1:b 2:c 3:d"}, []string{"0:a=1 1:b=2"}},
		"a UUID is there twice":               {[]string{all}, []string{"0: 1: 2:c 3:d"}, []string{"0:a=1 1:b=2"}},
		"the first look after an upgrade":     {nil, []string{all}, []string{"0:a=1 1:b=2"}},
		"an upgrade, and the next renumbered": {nil, []string{all, "0:b 1:c 2:d"}, []string{"0:a=1 1:b=2", "0:b=2 1~0 2~1 a-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newGPUHost(t)
			for _, gpus := range row.before {
				h.look(gpus)
			}
			if row.before == nil {
				h.devices = []snapshot.Device{{Index: 0, TotalMemory: snapshot.MiB(1000)}, {Index: 1, TotalMemory: snapshot.MiB(1000)}}
			}
			h.attach("1", 0)
			h.attach("2", 1)
			if row.before != nil {
				h.look(row.before[len(row.before)-1])
			}
			var since snapshot.StartTime
			for i, gpus := range row.after {
				f, got := h.look(gpus)
				require.Equal(t, row.want[i], got, "look %d", i)
				for _, d := range f.Devices {
					require.True(t, d.TotalMemory.Known(), "device %d", d.Index)
					if a := d.Attachment("2"); a != nil {
						require.True(t, since == 0 || a.Since == since, "its age goes on")
						since = a.Since
					}
				}
			}
		})
	}
}

// What was attached since the last look may be meant by either numbering: both GPUs may be used.
func TestAttachedDuringARenumbering(t *testing.T) {
	h := newGPUHost(t)
	h.look("0:a 1:b 2:c")
	h.attach("1", 1)
	f, got := h.look("0:b 1:c")
	require.Equal(t, "1:c=1 1~0", got)
	require.Len(t, f.Warnings, 1)
	_, got = h.look("0:b 1:c")
	require.Equal(t, "1:c=1 1~0", got, "and it stays")
}

// Root's genv often reads the files alone, and attaches by them: that says nothing about GPUs.
func TestLooksAtTheFilesAlone(t *testing.T) {
	for next, want := range map[string]string{"0:a 1:b 2:c": "1:b=1", "0:b 1:c": "1:c=1 1~0"} {
		h := newGPUHost(t)
		h.look("0:a 1:b 2:c")
		h.attach("1", 1)
		h.look("")
		seen := h.start
		h.look("")
		f, got := h.look(next)
		require.Equal(t, want, got)
		require.Less(t, f.Device(1).Attachment("1").Since, seen)
	}
}

// The grace for shells that don't know ends when one is refreshed, after a day, and with the environment.
func TestFormerIndicesEnd(t *testing.T) {
	renumbered := func(t *testing.T) *gpuHost {
		h := newGPUHost(t)
		h.look("0:a 1:b")
		h.attach("2", 1)
		h.look("0:a 1:b")
		f, got := h.look("0:b 1:c")
		require.Equal(t, "0:b=2 2~1", got)
		require.Len(t, f.Warnings, 1)
		f, _ = h.look("0:b 1:c")
		require.Empty(t, f.Warnings, "it is said once")
		return h
	}
	t.Run("refreshed", func(t *testing.T) {
		h := renumbered(t)
		f := &Files{Devices: h.devices}
		since := f.Devices[0].Attachments[0].Since
		f.Refresh("2", snapshot.DateOf(time.Unix(1<<20, 0).UTC()))
		h.devices = f.Devices
		f, got := h.look("0:b 1:c")
		require.Equal(t, "0:b=2", got)
		require.Equal(t, since, f.Devices[0].Attachments[0].Since, "its age goes on")
	})
	t.Run("a day", func(t *testing.T) {
		h := renumbered(t)
		h.start += formerGrace - 3000
		_, got := h.look("0:b 1:c")
		require.Equal(t, "0:b=2 2~1", got)
		_, got = h.look("0:b 1:c")
		require.Equal(t, "0:b=2", got)
	})
	t.Run("the environment", func(t *testing.T) {
		h := renumbered(t)
		h.envs = h.envs[:1]
		f, got := h.look("0:b 1:c")
		require.Empty(t, got)
		require.Empty(t, f.Former[:0])
		require.Empty(t, h.looks.Former)
	})
}

// Who keeps no note moves nothing, and registers nothing by other indices.
func TestOthersDoNotRenumber(t *testing.T) {
	h := newGPUHost(t)
	h.look("0:a 1:b")
	h.attach("1", 0)
	h.look("0:a 1:b")
	f := &Files{Devices: h.devices}
	h.looks.Apply(f)
	f.MergeDevices([]snapshot.Device{{Index: 0, UUID: "b", TotalMemory: snapshot.MiB(1000)}})
	require.Equal(t, h.devices, f.Devices)
	require.Len(t, f.Warnings, 1)
}
