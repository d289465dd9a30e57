package smi

import "strings"

var (
	listedGPU = lazily(`^GPU (\d+): `)
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
			in, found = v.device(match[1]) != nil, true
		case !found || !listedMIG().MatchString(line):
			return "", false
		}
		if in {
			kept.WriteString(line)
		}
	}
	return kept.String(), found
}
