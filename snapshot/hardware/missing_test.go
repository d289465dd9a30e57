package hardware_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/hardware"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// TestWithMissing: GPUs of nvidia-smi are written as INDEX:UUID, with "!" if they have failed and
// "@ADDRESS" where that is all that is known; those of the driver as UUID@ADDRESS, in the order of the bus.
func TestWithMissing(t *testing.T) {
	for _, row := range []struct{ listed, driver, want string }{
		{"0:a 1:b", "a@1 b@2", "0:a 1:b"},
		{"0:a 1:b", "", "0:a 1:b"},
		{"0:a 1:!@2 2:c", "a@1 b@2 c@3", "0:a 1:!b 2:c"},
		{"0:a 1:! 2:c", "a@1 b@2 c@3", "0:a 1:!b 2:c"},
		{"0:a 1:! 2:! 3:d", "a@1 b@2 c@3 d@4", "0:a 1:!b 2:!c 3:d"},
		{"0:a 1:! 2:c", "a@1 ?@2 c@3", "0:a 1:! 2:c"},
		{"0:a 1:c", "a@1 b@2 c@3", "0:a 1:c 2:!b"},
		{"0:c", "a@1 b@2 c@3", "0:c 1:!a 2:!b"},
		{"0:a 1:c", "?@1 ?@2 ?@3", "0:a 1:c 2:!"},
		{"0:a 1:!@9", "a@1 b@2", "0:a 1:!@9"},
	} {
		var listed []nvidiasmi.GPU
		for i, word := range strings.Fields(row.listed) {
			_, uuid, _ := strings.Cut(word, ":")
			uuid, address, _ := strings.Cut(uuid, "@")
			uuid, failed := strings.CutPrefix(uuid, "!")
			g := nvidiasmi.GPU{Index: snapshot.DeviceIndex(i), UUID: snapshot.GPUUUID(uuid), Failed: failed}
			if address != "" {
				g.Address = fmt.Sprintf("00000000:0%s:00.0", address)
			}
			listed = append(listed, g)
		}
		var driver []hardware.Device
		for _, word := range strings.Fields(row.driver) {
			uuid, address, _ := strings.Cut(word, "@")
			driver = append(driver, hardware.Device{UUID: snapshot.GPUUUID(strings.Trim(uuid, "?")), Address: fmt.Sprintf("0000:0%s:00.0", address)})
		}
		var got []string
		for _, g := range hardware.WithMissing(listed, driver) {
			word := fmt.Sprintf("%d:", g.Index)
			if g.Failed {
				word += "!"
			}
			if word += string(g.UUID); g.UUID == "" && g.Address != "" {
				word += "@" + g.Address[10:11]
			}
			got = append(got, word)
		}
		require.Equal(t, row.want, strings.Join(got, " "), row)
	}
}
