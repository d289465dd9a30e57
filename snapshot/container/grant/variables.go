package grant

import (
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/oci"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// cudaVisible is the variable by which CUDA chooses devices.
const cudaVisible = "CUDA_VISIBLE_DEVICES"

// SetVariables tells a container's first process what it has. It always removes the token.
func (g Granted) SetVariables(c *oci.Config) {
	c.UnsetEnv(TokenVariable)
	if g.EID == "" {
		return
	}
	c.SetEnv(snapshot.ClaimVariable, string(g.EID))
	c.SetEnv(Contained, "1")
	c.UnsetEnv(Name)
	if g.Name != "" {
		c.SetEnv(Name, g.Name)
	}
	if !g.GPUs {
		return
	}
	if g.Memory.Known() {
		c.SetEnv(GPUMemory, g.Memory.String())
	}
	list := g.visible()
	c.SetEnv(visible, list)
	// A container sees only its own devices, so that an index given by the user, which counts
	// from the first of them, is as good as a UUID.
	if _, set := c.LookupEnv(cudaVisible); !set && g.UUIDs != nil {
		c.SetEnv(cudaVisible, list)
	}
}

// visible lists the devices as NVIDIA's programs read them.
func (g Granted) visible() string {
	if len(g.Devices) == 0 {
		return "void"
	}
	if g.UUIDs == nil {
		return text.JoinIndices(g.Devices)
	}
	names := make([]string, len(g.UUIDs))
	for i, uuid := range g.UUIDs {
		names[i] = string(uuid)
	}
	return strings.Join(names, ",")
}
