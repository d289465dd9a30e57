package docker

import (
	"slices"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
)

// Call is a command line of docker that starts a container.
type Call struct {
	head  []string // up to the command, with it
	flags []flag
	rest  []string // from the image on
}

// Parse finds the flags of `docker [container] run|create`; ok is false for every other
// command, and for one that docker refuses since a value or the image is missing. An
// error is ErrUnknownFlag.
func Parse(args []string) (call Call, ok bool, err error) { return parse(args, runFlags) }

// parseOwn is Parse for `genv docker`, which has flags of its own.
func parseOwn(args []string) (call Call, ok bool, err error) {
	return parse(args, flagSet{switches: runFlags.switches + ownSwitches, valued: runFlags.valued + ownValued})
}

func parse(args []string, known flagSet) (call Call, ok bool, err error) {
	_, rest, err := globalFlags.read(args)
	if len(rest) > 0 && rest[0] == "container" {
		rest = rest[1:]
	}
	if len(rest) == 0 || rest[0] != "run" && rest[0] != "create" {
		return Call{}, false, err
	}
	call.head = args[:len(args)-len(rest)+1]
	call.flags, call.rest, err = known.read(rest[1:])
	return call, len(call.rest) > 0, err
}

// Args is the command line in the environment. Its error is ErrNotAttached,
// ErrTooMany, ErrNoDevices or ErrRequest, and is a whole message.
func (c Call) Args(env Environment) ([]string, error) {
	args := slices.Clone(c.head)
	variables := []string{snapshot.ClaimVariable + "=" + string(env.EID)}
	if env.Name != "" {
		variables = append(variables, "GENV_ENVIRONMENT_NAME="+env.Name)
	}
	for _, f := range c.flags {
		replaced, err := env.flag(f)
		if err != nil {
			return nil, err
		}
		args = append(args, replaced...)
	}
	devices, err := env.visible(c.flags)
	if err != nil {
		return nil, err
	}
	if devices != "" {
		variables = append(variables, visible+"="+devices)
	}
	if env.Token != "" {
		variables = append(variables, grant.TokenVariable) // the value is in docker's own environment
	}
	for _, variable := range variables { // behind the user's: the last one counts
		args = append(args, "-e", variable)
	}
	return append(args, c.rest...), nil
}

// WithoutDevices says whether the container gets no device although it asks for all, since
// none is attached.
func (c Call) WithoutDevices(env Environment) bool {
	return len(env.Devices) == 0 && slices.ContainsFunc(c.flags, func(f flag) bool { return f.name == "--gpus" && all(f.value) })
}

// flag is what replaces a flag.
func (env Environment) flag(f flag) ([]string, error) {
	switch {
	case f.name == "--gpus" && f.value != "":
		value, err := env.gpus(f.value)
		return []string{"--gpus", value}, err
	case f.name == "--device" && strings.HasPrefix(f.value, cdi):
		return env.cdi(f.value)
	}
	return f.args, nil
}

// visible is the value for NVIDIA_VISIBLE_DEVICES; empty to set none. The nvidia runtime
// also obeys the variable of the image, which is "all" in the images of CUDA.
func (env Environment) visible(flags []flag) (string, error) {
	gpus, runtime := false, false
	for _, f := range slices.Backward(flags) { // the last one counts
		name, list, given := strings.Cut(f.value, "=")
		if (f.name == "-e" || f.name == "--env") && name == visible {
			if !given {
				list = "all" // the shell's value, which isn't known here
			}
			return env.visibleList(f, list)
		}
		gpus = gpus || f.name == "--gpus"
		runtime = runtime || f.name == "--runtime" && f.value == "nvidia"
	}
	if gpus || !runtime {
		return "", nil // docker itself goes by --gpus
	}
	return join(env.Devices), nil
}

func (env Environment) visibleList(f flag, list string) (string, error) {
	if list == "" || list == "none" || list == visibleNone {
		return list, nil
	}
	devices, err := env.pick(strings.Join(f.args, " "), list)
	return join(devices), err
}
