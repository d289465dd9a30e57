package hardware

import (
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
)

// WithMissing adds the GPUs that the driver has and nvidia-smi doesn't list, and identifies those
// of which it says only that they are lost. Where both are as many, they are in the same order.
func WithMissing(list []nvidiasmi.GPU, driver []Device) []nvidiasmi.GPU {
	nameless := func(g *nvidiasmi.GPU) bool { return g.Failed && g.UUID == "" && g.Address == "" }
	var unnamed []*nvidiasmi.GPU
	listed := make(map[snapshot.GPUUUID]bool, len(list))
	for i := range list {
		g := &list[i]
		at := slices.IndexFunc(driver, func(d Device) bool { return g.Address != "" && SameAddress(d.Address, g.Address) })
		if at >= 0 && g.UUID == "" {
			g.UUID, g.Name = driver[at].UUID, driver[at].Name
		}
		if listed[g.UUID] = true; nameless(g) {
			unnamed = append(unnamed, g)
		}
	}
	var missing []Device
	for _, d := range driver {
		if !listed[d.UUID] && d.UUID != "" {
			missing = append(missing, d)
		}
	}
	if len(missing) == len(unnamed) {
		for i, g := range unnamed {
			g.UUID, g.Name = missing[i].UUID, missing[i].Name
		}
	}
	for i := len(list); i < len(driver); i++ {
		g := nvidiasmi.GPU{Index: list[len(list)-1].Index + 1, Failed: true, Problem: "the driver has this GPU, and nvidia-smi doesn't list it"}
		if len(unnamed) == 0 && len(missing) == len(driver)-len(list) {
			g.UUID, g.Name = missing[0].UUID, missing[0].Name
			missing = missing[1:]
		}
		list = append(list, g)
	}
	return list
}
