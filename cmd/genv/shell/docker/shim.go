// Package docker is the shim of docker: `docker run` and `docker create` give a container only devices of the
// environment, and -e GENV_ENVIRONMENT_ID and GENV_ENVIRONMENT_NAME. The real docker gets everything else unchanged.
//
//	docker run --gpus all …            the attached devices
//	docker run --gpus 2 …              the first two of them
//	docker run --gpus device=3 …       device 3, if it is attached
//	docker run --device nvidia.com/gpu=all …   the attached devices (CDI)
//	docker run -e NVIDIA_VISIBLE_DEVICES=all … the attached devices
//	docker run --runtime nvidia …      the same, whatever the image says
//
// Asking for more than is attached is an error. Only docker's own arguments, before the image, are read or changed.
// GENV_BYPASS=1 skips all this; enforcement doesn't depend on it.
package docker

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Shim is one call of docker.
type Shim struct {
	Real        string   // its path
	Args        []string // without the program's name
	Environ     []string
	Bypass      bool                                 // by GENV_BYPASS=1: docker gets the call unchanged
	Environment func() (ContainerEnvironment, error) // for calls that start a container
	Stderr      io.Writer
	Exec        func(path string, argv, environ []string) error // as syscall.Exec, which returns only on failure
}

// RunOwn is `genv docker`: containers get an environment of their own. It calls token, which may return "", only if a
// container starts.
func (s Shim) RunOwn(over bool, token func() string) error {
	own := flagSet{switches: runFlags.switches + " --over-subscribe ", valued: runFlags.valued + " --gpu-memory "}
	call, ok, err := parse(s.Args, own)
	if err != nil {
		return err
	}
	if !ok {
		return s.become(s.Args, "")
	}
	proof := token()
	args, err := call.own(over, proof != "")
	if err != nil {
		return err
	}
	return s.become(args, proof)
}

// FailedStatus is docker's exit status if it can't start a container: docker-run(1), "EXIT STATUS".
const FailedStatus = 125

// Run replaces this process with docker. Its error is for the user; exit with FailedStatus then.
func (s Shim) Run() error {
	args, token, err := s.args()
	if err != nil {
		return err
	}
	return s.become(args, token)
}

// become passes a token in the environment, because every user can read arguments.
func (s Shim) become(args []string, token string) error {
	environ := s.Environ
	if token != "" {
		environ = append(slices.Clone(environ), grant.TokenVariable+"="+token)
	}
	if err := s.Exec(s.Real, append([]string{s.Real}, args...), environ); err != nil {
		return fmt.Errorf("start %s: %w", s.Real, err)
	}
	return nil
}

func (s Shim) args() (args []string, token string, err error) {
	if s.Bypass {
		return s.Args, "", nil
	}
	call, ok, err := Parse(s.Args)
	if err != nil {
		_, _ = fmt.Fprintf(s.Stderr, "genv: docker is called as written, not limited to the attached GPUs: %v\n", err)
	}
	if !ok {
		return s.Args, "", nil
	}
	env, err := s.Environment()
	if err != nil {
		return nil, "", fmt.Errorf("it is unknown which GPUs are attached (GENV_BYPASS=1 runs docker anyway): %w", err)
	}
	args, err = call.Args(env)
	if err == nil && call.WithoutDevices(env) {
		_, _ = fmt.Fprintf(s.Stderr, "genv: no GPU is attached to environment %s, so docker runs with --gpus 0: run "+
			"genv attach first\n", text.Shown(string(env.EID)))
	}
	return args, env.Token, err
}

// StartCommand is a docker command line that starts a container.
type StartCommand struct {
	head  []string // up to and including the command
	flags []flag
	rest  []string // from the image on
}

// Parse finds the flags of `docker [container] run|create`; ok is false for other commands, and if a value or the image
// is missing. Its error is ErrUnknownFlag.
func Parse(args []string) (call StartCommand, ok bool, err error) { return parse(args, runFlags) }

func parse(args []string, known flagSet) (call StartCommand, ok bool, err error) {
	_, rest, err := globalFlags.read(args)
	if len(rest) > 0 && rest[0] == "container" {
		rest = rest[1:]
	}
	if len(rest) == 0 || rest[0] != "run" && rest[0] != "create" {
		return StartCommand{}, false, err
	}
	call.head = args[:len(args)-len(rest)+1]
	call.flags, call.rest, err = known.read(rest[1:])
	return call, len(call.rest) > 0, err
}

// Args is the rewritten command line. Its error is ErrNotAttached, ErrTooMany, ErrNoDevices or ErrRequest.
func (c StartCommand) Args(env ContainerEnvironment) ([]string, error) {
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
	return c.with(args, variables, env.Token != ""), nil
}

// with adds variables behind the user's own, because the last one counts. The token's value is in docker's environment.
func (c StartCommand) with(args, variables []string, token bool) []string {
	if token {
		variables = append(variables, grant.TokenVariable)
	}
	for _, variable := range variables {
		args = append(args, "-e", variable)
	}
	return append(args, c.rest...)
}

// WithoutDevices reports whether the container asks for all devices, and none is attached.
func (c StartCommand) WithoutDevices(env ContainerEnvironment) bool {
	return len(env.Devices) == 0 &&
		slices.ContainsFunc(c.flags, func(f flag) bool { return f.name == "--gpus" && all(f.value) })
}

func (env ContainerEnvironment) flag(f flag) ([]string, error) {
	switch {
	case f.name == "--gpus" && f.value != "":
		value, err := env.gpus(f.value)
		return []string{"--gpus", value}, err
	case f.name == "--device" && strings.HasPrefix(f.value, cdi):
		return env.cdi(f.value)
	}
	return f.args, nil
}

// visible is the value for NVIDIA_VISIBLE_DEVICES; empty to leave it. NVIDIA's runtime obeys the image's value, which
// is "all" for CUDA, so it is set even if no GPU is asked for.
func (env ContainerEnvironment) visible(flags []flag) (string, error) {
	devices := join(env.Devices)
	for _, f := range slices.Backward(flags) { // the last one counts
		name, list, given := strings.Cut(f.value, "=")
		switch {
		case (f.name == "-e" || f.name == "--env") && name == visible:
			if !given {
				list = "all" // the shell's value, unknown here
			}
			return env.visibleList(f, list)
		case f.name == "--gpus" && (f.value == "0" || len(env.Devices) == 0),
			f.name == "--device" && strings.HasPrefix(f.value, cdi):
			devices = visibleNone
		case f.name == "--gpus":
			devices = "" // docker itself obeys --gpus
		}
	}
	return devices, nil
}

func (env ContainerEnvironment) visibleList(f flag, list string) (string, error) {
	if list == "" || list == "none" || list == visibleNone {
		return list, nil
	}
	devices, err := env.pick(strings.Join(f.args, " "), list)
	return join(devices), err
}

// own turns genv's flags into variables for its runtime.
func (c StartCommand) own(over, token bool) ([]string, error) {
	args := slices.Clone(c.head)
	var variables []string
	set := func(name, value string) { variables = append(variables, name+"="+value) }
	runtime := false
	for _, f := range c.flags {
		switch f.name {
		case "--over-subscribe":
			over = true
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
	if !runtime {
		args = append(args, "--runtime", Runtime)
	}
	return c.with(args, variables, token), nil
}

// Runtime is the name of genv's container runtime in daemon.json.
const Runtime = "genv"
