package amdgpu

import (
	"bytes"
	"strconv"
	"strings"
)

// client is one opening of a render node, as fdinfo describes it.
type client struct {
	id           uint64 // the same for copies of a file descriptor
	address      string // of the PCI bus
	vram         uint64 // bytes
	compute, gfx uint64 // nanoseconds on each kind of engine
}

// renderNode is how the paths of render nodes begin.
const renderNode = "/dev/dri/renderD"

// parseClient parses lines "key: value" of fdinfo; ok is false if it isn't that of an AMD GPU,
// or doesn't say which client and which GPU it is about.
func parseClient(data []byte) (c client, ok bool) {
	amd, named := false, false
	for line := range bytes.Lines(data) {
		key, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimSpace(value)
		switch key {
		case "drm-driver":
			amd = value == "amdgpu"
		case "drm-pdev":
			c.address = strings.ToLower(value)
		case "drm-client-id":
			id, err := strconv.ParseUint(value, 10, 64)
			c.id, named = id, err == nil
		case "drm-memory-vram", "drm-resident-vram": // two names of one amount
			c.vram = max(c.vram, amount(value))
		case "drm-engine-compute":
			c.compute = amount(value)
		case "drm-engine-gfx":
			c.gfx = amount(value)
		}
	}
	return c, amd && named && c.address != ""
}

// amount is a number with a unit, of which only those of memory count; 0 for anything else.
func amount(value string) uint64 {
	number, unit, _ := strings.Cut(value, " ")
	n, err := strconv.ParseUint(number, 10, 64)
	factor := map[string]uint64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[strings.TrimSpace(unit)]
	if factor == 0 {
		factor = 1
	}
	if err != nil || n > maxBytes/factor {
		return 0
	}
	return n * factor
}
