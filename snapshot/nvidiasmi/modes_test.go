package nvidiasmi_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

func TestParseModes(t *testing.T) {
	on, off := true, false
	const values = "81559, 0, 0, 30, 15.0, "
	got, err := nvidiasmi.ParseModes(stdout("0, GPU-0, " + values + "Enabled, 550.163.01\n1, GPU-1, " + values + "Disabled, 550.163.01\n" +
		"2, GPU-2, " + values + "[N/A], [N/A]\r\n3, GPU-3, " + values + "Maybe, \x1b[2J\nUnable to determine the device handle for GPU4: 0000:05:00.0: Unknown Error\n"))
	require.NoError(t, err)
	var persistence []*bool
	var drivers []string
	for _, g := range got.GPUs {
		persistence, drivers = append(persistence, g.Persistence), append(drivers, g.Driver)
	}
	require.Equal(t, []*bool{&on, &off, nil, nil, nil}, persistence)
	require.Equal(t, []string{"550.163.01", "550.163.01", "", "", ""}, drivers)
	require.True(t, got.GPUs[4].Failed)
	require.Equal(t, snapshot.GPUUUID("GPU-1"), got.GPUs[1].UUID)
}
