package container

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Engines are the container engines of this machine that root runs.
type Engines struct {
	// Root is put before all paths; empty for none.
	Root string
}

func (e Engines) path(path string) string { return filepath.Join(e.Root, path) }

// The sockets of the engines. The second one is Docker's where /var/run is no link to /run.
var (
	dockerSockets = []string{"/run/docker.sock", "/var/run/docker.sock"}
	podmanSockets = []string{"/run/podman/podman.sock"}
)

// engineSource is one way to find out about a container.
type engineSource struct {
	api    *api // nil for a record
	record func(id string) (Details, error)
}

func (s engineSource) inspect(ctx context.Context, id string) (Details, error) {
	if s.api != nil {
		return s.api.inspect(ctx, id)
	}
	return s.record(id)
}

// sources are the ways to find out about a container, the best first.
func (e Engines) sources(runtime string) []engineSource {
	docker := append(e.apis(dockerSockets), engineSource{record: e.dockerRecord}, engineSource{record: e.bundleRecord})
	podman := append(e.apis(podmanSockets), engineSource{record: e.storageRecord})
	switch runtime {
	case proc.Docker:
		return docker
	case proc.Podman:
		return podman
	case proc.Containerd:
		return []engineSource{{record: e.bundleRecord}}
	case proc.CRIO:
		return []engineSource{{record: e.storageRecord}}
	}
	return append(docker, podman...)
}

func (e Engines) apis(sockets []string) (list []engineSource) {
	for _, socket := range sockets {
		list = append(list, engineSource{api: &api{e.path(socket)}})
	}
	return list
}

// Inspect finds out about a container. It asks the engine, and if that has not answered
// when ctx ends, or without a socket, it reads the engine's records. The error is
// ErrNotFound or wraps ErrUnknown, and folder.ErrUntrusted if others than root can write
// a record.
func (e Engines) Inspect(ctx context.Context, place proc.Place) (Details, error) {
	missing, failed, stamp := false, error(nil), e.stamp(place)
	for _, s := range e.sources(place.Runtime) {
		if s.api != nil && ctx.Err() != nil {
			continue
		}
		details, err := s.inspect(ctx, place.ID)
		switch {
		case err == nil:
			details.Stamp = cmp.Or(details.Stamp, stamp)
			return details, nil
		case errors.Is(err, ErrNotFound):
			missing = true
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

// Stop has the engine of a container stop it: its stop signal, the grace, then SIGKILL. It
// returns when the container has stopped. The error is ErrNotFound if it doesn't exist,
// and may wrap ErrNoEngine; after any other one it is unknown whether it stops.
func (e Engines) Stop(ctx context.Context, place proc.Place, grace time.Duration) error {
	result := ErrNoEngine
	for _, s := range e.sources(place.Runtime) {
		if s.api == nil {
			continue
		}
		switch err := s.api.stop(ctx, place.ID, grace); {
		case errors.Is(err, ErrNotFound):
			result = err
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return result
}

// bundles are the folders of containerd's bundles, and of that in k3s, with a folder for each
// namespace.
var bundles = []string{"/run/containerd/io.containerd.runtime.v2.task", "/run/k3s/containerd/io.containerd.runtime.v2.task"}

// bundleRecord reads the bundle that containerd keeps of a running container. Kubernetes notes the
// image in it. For nerdctl and ctr the image, the labels and a changed name are only in containerd's
// own database, so they stay unknown.
func (e Engines) bundleRecord(id string) (Details, error) {
	for _, folder := range bundles {
		data, at, err := e.readOnly(folder, "", id, "config.json")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return Details{}, err
		}
		details, err := ParseBundle(data)
		if err != nil {
			return Details{}, err
		}
		details.Unknown = details.Image == ""
		details.Init = e.readPID(filepath.Join(at, "init.pid"))
		details.Stamp = stampOf(e.path(filepath.Join(at, "config.json")))
		return details, nil
	}
	return Details{}, fs.ErrNotExist
}
