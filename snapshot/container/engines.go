package container

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Engines are the container engines of this machine that root runs, Docker and Podman.
type Engines struct {
	Root string // put before the paths of their sockets; empty for none
}

// apis are those that may know a container. Docker's second socket is where /var/run isn't a link to /run.
func (e Engines) apis(runtime string) (list []api) {
	docker, podman := []string{"/run/docker.sock", "/var/run/docker.sock"}, []string{"/run/podman/podman.sock"}
	var sockets []string
	switch runtime {
	case proc.Docker:
		sockets = docker
	case proc.Podman:
		sockets = podman
	case "":
		sockets = slices.Concat(docker, podman)
	}
	for _, socket := range sockets {
		list = append(list, api{filepath.Join(e.Root, socket)})
	}
	return list
}

// Inspect asks the engine of a container. The error is ErrNotFound, or wraps ErrUnknown if none answers.
func (e Engines) Inspect(ctx context.Context, place proc.Cgroup) (Details, error) {
	missing, failed := false, error(nil)
	for _, api := range e.apis(place.Runtime) {
		details, err := api.inspect(ctx, place.ID)
		switch {
		case err == nil:
			return details, nil
		case errors.Is(err, ErrNotFound):
			missing = place.Runtime != "" // else an engine without an API may have it
		case !errors.Is(err, fs.ErrNotExist):
			failed = errors.Join(failed, err)
		}
	}
	if missing && failed == nil {
		return Details{}, ErrNotFound
	}
	return Details{}, errors.Join(ErrUnknown, failed)
}

// ErrNoEngine means that no engine with an API has this container: none can stop it.
var ErrNoEngine = errors.New("no container engine that could stop it answers on its socket")

// Stop has the engine stop a container: stop signal, grace, SIGKILL; it returns then. The error is ErrNotFound, or may
// wrap ErrNoEngine; after any other one it is unknown whether it stops.
func (e Engines) Stop(ctx context.Context, place proc.Cgroup, grace time.Duration) error {
	result := ErrNoEngine
	for _, api := range e.apis(place.Runtime) {
		switch err := api.stop(ctx, place.ID, grace); {
		case errors.Is(err, ErrNotFound):
			result = err
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return result
}
