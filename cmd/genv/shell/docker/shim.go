// Package docker is the shim of docker: with it, `docker run` and `docker create` give a container only devices of the
// environment, and variables that name the environment. Everything else goes to the real docker as it is.
//
//	docker run --gpus all …            the attached devices
//	docker run --gpus 2 …              the first two of them
//	docker run --gpus device=3 …       device 3, if it is attached
//	docker run --device nvidia.com/gpu=all …   the attached devices (CDI)
//	docker run -e NVIDIA_VISIBLE_DEVICES=all … the attached devices
//	docker run --runtime nvidia …      the same, whatever the image says
//
// Each gets -e GENV_ENVIRONMENT_ID and GENV_ENVIRONMENT_NAME. Asking for more than is attached is an error. Only
// docker's own arguments, before the image, are read or changed, never the container's command. GENV_BYPASS=1 skips all
// this: it only helps users, and enforcement doesn't depend on it.
package docker

import (
	"fmt"
	"io"
	"slices"

	"github.com/seed-3119e985/genv/snapshot/container/grant"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Shim answers one call of docker.
type Shim struct {
	Real    string   // the real docker, by its path
	Args    []string // without the program's name
	Environ []string
	Bypass  bool // run docker as it was called: outside an environment, or with GENV_BYPASS=1
	// Environment is asked only for calls that start a container.
	Environment func() (ContainerEnvironment, error)
	Stderr      io.Writer
	// Exec becomes another program, as syscall.Exec: it returns only an error.
	Exec func(path string, argv, environ []string) error
}

// RunOwn becomes docker for `genv docker`: containers get an environment of their own. token
// is asked only for calls that start a container, and returns "" if there is none.
func (s Shim) RunOwn(over bool, token func() string) error {
	call, ok, err := parseOwn(s.Args)
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

// FailedStatus is docker's own exit status when it can't start a container: docker-run(1), "EXIT STATUS".
const FailedStatus = 125

// Run becomes docker. Its error is a message for the user, after which the program ends with FailedStatus.
func (s Shim) Run() error {
	args, token, err := s.args()
	if err != nil {
		return err
	}
	return s.become(args, token)
}

// become is exec(2) of docker. A token is in its environment: every user can read its arguments.
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
		_, _ = fmt.Fprintf(s.Stderr, "genv: docker is called as written, its GPUs not limited to the attached "+
			"ones: %v\n", err)
	}
	if !ok {
		return s.Args, "", nil
	}
	env, err := s.Environment()
	if err != nil {
		return nil, "", fmt.Errorf("which GPUs are attached is not known (GENV_BYPASS=1 runs docker without "+
			"asking): %w", err)
	}
	args, err = call.Args(env)
	if err == nil && call.WithoutDevices(env) {
		_, _ = fmt.Fprintf(s.Stderr, "genv: no GPU is attached to environment %s, so docker runs with --gpus 0: run "+
			"genv attach first\n", text.Shown(string(env.EID)))
	}
	return args, env.Token, err
}
