package container

import (
	"cmp"
	"errors"
	"io/fs"
	"path/filepath"

	"github.com/seed-3119e985/genv/snapshot/container/containerd"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// containerds are the folders of containerd, and of that in k3s: of the bundles, with a folder
// for each namespace, and of what it keeps.
var containerds = []struct{ bundles, data string }{
	{"/run/containerd/io.containerd.runtime.v2.task", "/var/lib/containerd"},
	{"/run/k3s/containerd/io.containerd.runtime.v2.task", "/var/lib/rancher/k3s/agent/containerd"},
}

// bundleRecord reads the bundle that containerd keeps of a running container.
func (e Engines) bundleRecord(id string) (Details, error) {
	for _, c := range containerds {
		data, at, err := e.readOnly(c.bundles, "", id, "config.json")
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
		details.Init = e.readPID(filepath.Join(at, "init.pid"))
		details.Stamp = stampOf(e.path(filepath.Join(at, "config.json")))
		if details.Image == "" { // Kubernetes notes it in the bundle, nerdctl doesn't
			e.addMetadata(&details, filepath.Join(c.data, "io.containerd.metadata.v1.bolt/meta.db"), filepath.Base(filepath.Dir(at)), id)
		}
		return details, nil
	}
	return Details{}, fs.ErrNotExist
}

// nameLabel is the name of a container of nerdctl. Unlike the annotation in the bundle, it
// changes with the name.
const nameLabel = "nerdctl/name"

// addMetadata adds what containerd's database says about a container. Without it, the image is
// unknown.
func (e Engines) addMetadata(details *Details, path, namespace, id string) {
	file, err := folder.OpenTrustedPath(e.Root, path)
	if err != nil {
		return
	}
	defer file.Close()
	stamp := stampOf(e.path(path))
	found, err := containerd.Read(file, namespace, id)
	if err != nil {
		return
	}
	details.Image, details.Stamp = shortened(found.Image), stamp
	if found.Labels != nil {
		details.Labels = found.Labels
		details.Name = cmp.Or(shortened(found.Labels[nameLabel]), details.Name)
	}
}
