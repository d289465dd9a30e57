package gpus

import (
	"fmt"
	"io"
	"strings"
)

// showList prints what `nvidia-smi -L` prints: a line for each device, and one
// below it for each of its MIG instances.
func showList(w io.Writer, h Host) error {
	var b strings.Builder
	for _, d := range h.Devices {
		fmt.Fprintf(&b, "GPU %d: %s (UUID: %s)\n", d.Index, d.Name, d.UUID)
		for i, m := range d.MIG {
			fmt.Fprintf(&b, "  MIG %-11s Device %2d: (UUID: %s)\n", m.Profile, i, m.UUID)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
