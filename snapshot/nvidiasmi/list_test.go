package nvidiasmi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

func TestParseList(t *testing.T) {
	for name, want := range map[string][]snapshot.Device{
		"driver-470-list.txt": {
			{Index: 0, UUID: "GPU-5a5c3f2e-0001-4c4b-9f1e-000000000000"},
			{Index: 1, UUID: "GPU-5a5c3f2e-0001-4c4b-9f1e-000000000001"},
		},
		"driver-535-mig-list.txt": {
			{Index: 0, UUID: "GPU-5a5c3f2e-0002-4c4b-9f1e-000000000000", Instances: []snapshot.Instance{
				{UUID: "MIG-a0000000-0001-5fef-9c87-000000000001", Profile: "1g.10gb"},
				{UUID: "MIG-a0000000-0001-5fef-9c87-000000000002", Profile: "1g.10gb+me"},
			}},
			{Index: 1, UUID: "GPU-5a5c3f2e-0002-4c4b-9f1e-000000000001"},
		},
		"driver-450-mig-list.txt": {
			{Index: 0, UUID: "GPU-5a5c3f2e-0003-4c4b-9f1e-000000000000", Instances: []snapshot.Instance{
				{UUID: "MIG-GPU-5a5c3f2e-0003-4c4b-9f1e-000000000000/1/0", Profile: "3g.20gb"},
				{UUID: "MIG-GPU-5a5c3f2e-0003-4c4b-9f1e-000000000000/2/0", Profile: "3g.20gb"},
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := nvidiasmi.ParseList(stdout(string(constructed(t, name))))
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestParseListIgnoresOtherLinesUnderADevice(t *testing.T) {
	got, err := nvidiasmi.ParseList(stdout("GPU 0: X (UUID: GPU-1)\n  (No MIG devices)\n  MIG 1g.5gb Device 0: (UUID: MIG-1)\n  MIG \x1b Device 1: (UUID: MIG-2)\n"))
	require.NoError(t, err)
	require.Equal(t, []snapshot.Device{{UUID: "GPU-1", Instances: []snapshot.Instance{{UUID: "MIG-1", Profile: "1g.5gb"}, {UUID: "MIG-2"}}}}, got)
}

func TestParseListWithOtherLines(t *testing.T) {
	got, err := nvidiasmi.ParseList(stdout("GPU 0: X (UUID: GPU-1)\nUnable to determine the device handle for gpu 0000:02:00.0: GPU is lost.\n  MIG 1g.5gb Device 0: (UUID: MIG-1)\nGPU 1: X (UU\n  MIG 1g.5gb Device 0: (UUID: MIG-2)\nGPU 2: X (UUID: GPU-3)\n"))
	require.NoError(t, err)
	require.Equal(t, []snapshot.Device{{UUID: "GPU-1", Instances: []snapshot.Instance{{UUID: "MIG-1", Profile: "1g.5gb"}}}, {Index: 2, UUID: "GPU-3"}}, got)
}

func TestParseListRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                      "",
		"an instance without a device": "  MIG 1g.5gb Device 0: (UUID: MIG-1)\n",
		"a message":                    "Something is wrong with GPU 1\n",
		"a huge index":                 "GPU 1024: X (UUID: GPU-1)\n",
		"a negative index":             "GPU -1: X (UUID: GPU-1)\n",
		"an empty id":                  "GPU 0: X (UUID: )\n",
		"CSV":                          "0, GPU-1",
		"an escape in an id":           "GPU 0: X (UUID: GPU-\x1b1)\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := nvidiasmi.ParseList(stdout(text))
			require.ErrorIs(t, err, nvidiasmi.ErrGarbled)
		})
	}
}

func FuzzParseList(f *testing.F) {
	for _, name := range []string{"driver-470-list.txt", "driver-535-mig-list.txt", "driver-450-mig-list.txt"} {
		f.Add(constructed(f, name))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		devices, err := nvidiasmi.ParseList(stdout(string(data)))
		if err != nil {
			require.Empty(t, devices)
			return
		}
		require.NotEmpty(t, devices)
		for _, d := range devices {
			require.NotEmpty(t, d.UUID)
		}
	})
}
