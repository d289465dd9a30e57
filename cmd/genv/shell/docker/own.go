package docker

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
)

// The flags of `genv docker run` that docker doesn't have.
const (
	ownSwitches = " --over-subscribe --mount-shims --mount-locks "
	ownValued   = " --gpu-memory "
)

// own is the command line for a container with an environment of its own: the flags of genv
// become variables, which genv's container runtime reads.
func (c Call) own(over, token bool) ([]string, error) {
	args := slices.Clone(c.head)
	var variables []string
	set := func(name, value string) { variables = append(variables, name+"="+value) }
	runtime := false
	for _, f := range c.flags {
		switch f.name {
		case "--over-subscribe":
			over = true
			continue
		case "--mount-shims":
			set(grant.MountShims, "1")
			continue
		case "--mount-locks":
			set(grant.MountLocks, "1")
			continue
		case "--gpu-memory":
			if m, err := snapshot.ParseMemory(f.value); err != nil || m.Bytes() == 0 {
				return nil, fmt.Errorf("--gpu-memory %s: %w: write an amount such as 4g", f.value, ErrRequest)
			}
			set(grant.GPUMemory, f.value)
			continue
		case "--gpus":
			if n, err := strconv.ParseUint(f.value, 10, 16); err == nil && n > 0 {
				set(grant.GPUs, strconv.FormatUint(n, 10))
			} else if all(f.value) {
				set(grant.GPUs, "all")
			}
		case "--runtime":
			runtime = true
		}
		args = append(args, f.args...)
	}
	if over {
		set(grant.OverSubscribe, "1")
	}
	if token {
		variables = append(variables, grant.TokenVariable) // the value is in docker's own environment
	}
	if !runtime {
		args = append(args, "--runtime", Runtime)
	}
	for _, variable := range variables {
		args = append(args, "-e", variable)
	}
	return append(args, c.rest...), nil
}

// Runtime is the name of genv's container runtime in daemon.json.
const Runtime = "genv"
