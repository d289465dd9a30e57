package recording

import (
	"reflect"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
)

// Most of what is compared is the same in each cycle, and reflection would take most of the time.

// sameProcess compares what Judged leaves of processes, without Usage.
func sameProcess(a, b *snapshot.Process) bool {
	return a.PID == b.PID && a.EID == b.EID && a.EnvUnknown == b.EnvUnknown && a.Start == b.Start && sameValue(a.UID, b.UID) &&
		a.Name == b.Name && a.Container == b.Container && a.Inherited == b.Inherited && a.EnvOverwritten == b.EnvOverwritten &&
		a.Username == b.Username && a.UserUnknown == b.UserUnknown && a.Protected == b.Protected &&
		slices.Equal(a.Instances, b.Instances) && (a.ContainerInfo == b.ContainerInfo || reflect.DeepEqual(a.ContainerInfo, b.ContainerInfo))
}

// sameEnvironment compares what Judged leaves of environments.
func sameEnvironment(a, b *snapshot.Environment) bool {
	return a.EID == b.EID && a.UID == b.UID && a.Creation == b.Creation && a.Username == b.Username && a.OwnerMismatch == b.OwnerMismatch &&
		a.Config.Name == b.Config.Name && a.Config.GPUMemory == b.Config.GPUMemory && sameValue(a.Config.GPUs, b.Config.GPUs)
}

// sameDevice compares what Judged leaves of devices, without Utilization.
func sameDevice(a, b *snapshot.Device) bool {
	return a.Index == b.Index && a.TotalMemory == b.TotalMemory && a.UUID == b.UUID && a.ProcessesUnknown == b.ProcessesUnknown &&
		slices.Equal(a.Instances, b.Instances) && slices.EqualFunc(a.Attachments, b.Attachments, func(x, y snapshot.Attachment) bool {
		return x.EID == y.EID && x.GPUMemory == y.GPUMemory && x.Time == y.Time && slices.Equal(x.Instances, y.Instances)
	})
}

func sameValue[T comparable](a, b *T) bool {
	return a == b || a != nil && b != nil && *a == *b
}
