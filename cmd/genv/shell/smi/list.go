package smi

import "strings"

var (
	listedGPU = lazily(`^GPU (\d+): (?:.*\(UUID: ([^()]*)\))?`)
	listedMIG = lazily(`^ +MIG `) // an instance of the GPU above it
)

// rewriteList keeps the attached devices of -L, with their MIG instances.
func rewriteList(out string, v View) (string, bool) {
	var kept strings.Builder
	in, found := false, false
	for line := range strings.Lines(out) {
		match := listedGPU().FindStringSubmatch(line)
		switch {
		case match != nil:
			device := v.find(match[1], named(match[2]))
			if in, found = device != nil, true; in && v.Renumbered {
				line = device.renumber(line, len("GPU "), len("GPU ")+len(match[1]))
			}
		case !found || !listedMIG().MatchString(line):
			return "", false
		}
		if in {
			kept.WriteString(line)
		}
	}
	return kept.String(), found
}
