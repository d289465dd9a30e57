package state_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

func device(index snapshot.DeviceIndex, memory string, attachments ...snapshot.Attachment) snapshot.Device {
	d := snapshot.Device{Index: index, Attachments: attachments}
	if memory != "" {
		d.TotalMemory = snapshot.MustMemory(memory)
	}
	return d
}

func TestMerge(t *testing.T) {
	held := attachment("1667", "")
	tests := []struct {
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
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := state.Files{Devices: tt.files}
			b.MergeDevices(tt.found)
			require.Len(t, b.Warnings, tt.notes)
			require.Equal(t, tt.expected, b.Devices)
		})
	}
}
