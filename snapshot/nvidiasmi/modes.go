package nvidiasmi

import (
	"context"
	"strings"
)

// ModesArgs are the arguments for the output that ParseModes reads.
func ModesArgs() []string {
	return columns("index,uuid,memory.total,memory.used,utilization.gpu,temperature.gpu,power.draw," +
		"persistence_mode,driver_version")
}

// Modes lists the devices with how the driver runs each of them, and without names.
func (q *Querier) Modes(ctx context.Context) (Listing, error) {
	listing, _, err := query(ctx, q, ModesArgs(), 0, ParseModes)
	return listing, err
}

// ParseModes parses the answer for ModesArgs.
func ParseModes(out RunResult) (Listing, error) {
	return parseListing(out, 2, func(g *GPU, more []string) {
		g.Driver = plain(more[1])
		if mode := strings.ToLower(known(more[0])); mode == "enabled" || mode == "disabled" {
			on := mode == "enabled"
			g.Persistence = &on
		}
	})
}
