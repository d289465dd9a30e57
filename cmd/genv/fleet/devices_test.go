package fleet

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-3119e985/genv/remote"
	"github.com/seed-3119e985/genv/snapshot"
)

// TestDevicesWithMIG: a GPU of which an instance is attached is one device, which isn't
// available as a whole.
func TestDevicesWithMIG(t *testing.T) {
	instances := []snapshot.Instance{{UUID: "MIG-a", Profile: "1g.10gb"}, {UUID: "MIG-b", Profile: "1g.10gb"}}
	devices := deviceDocuments([]snapshot.Device{
		{Index: 0, TotalMemory: snapshot.MiB(81559), Instances: instances, Attachments: []snapshot.Attachment{
			{EID: "7", Instances: []snapshot.GPUUUID{"MIG-a"}}, {EID: "8", Instances: []snapshot.GPUUUID{"MIG-b"}},
		}},
		{Index: 1, TotalMemory: snapshot.MiB(81559), Instances: instances},
	})
	require.Equal(t, []snapshot.EnvID{"7", "8"}, devices[0].Environments)
	document := devicesDocumentOf([]remote.Result[[]deviceDocument]{{Host: remote.Host{Name: "gpu-1"}, Value: devices}}, nil)
	require.Equal(t, 2, document.Total)
	require.Equal(t, 1, document.Available)
}
