package local

import (
	"context"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
)

// uuids are which GPU each index is.
type uuids = map[snapshot.DeviceIndex]snapshot.GPUUUID

// presentGPUs asks the driver which GPU each index is now, if the report names any.
func (x *Executor) presentGPUs(ctx context.Context, named uuids) (uuids, error) {
	if len(named) == 0 {
		return nil, nil
	}
	return x.inspector.GPUs(ctx)
}

// otherGPU objects to a device that isn't the GPU any more that the report names, or isn't the
// one to which it is attached by root's note. files may be nil.
func otherGPU(index snapshot.DeviceIndex, named, now uuids, files *state.Files) objection {
	uuid := named[index]
	if uuid == "" {
		return objection{}
	}
	if now[index] != uuid {
		return changed("device %s is another GPU now than was judged: the GPUs were renumbered", index)
	}
	if files == nil {
		return objection{}
	}
	if d := files.Device(index); d != nil && d.UUID != "" && d.UUID != uuid {
		return changed("device %s was another GPU when it was attached: root's genv has to look first", index)
	}
	return objection{}
}
