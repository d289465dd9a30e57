package container

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

var (
	// ErrNotFound means that an engine that would have to know the container does not: no container
	// with this id runs.
	ErrNotFound = errors.New("no such container")
	// ErrUnknown means that no engine answered, and that there are no records.
	ErrUnknown = errors.New("what the container is could not be found out")
)

// Details are what an engine knows about a container. Texts may be whatever the engine's
// users chose, but are printable, and short enough for a snapshot.
type Details struct {
	Name   string // without Docker's leading slash
	Image  string // as it was named when the container was made, with its tag
	Labels map[string]string
	// EID is the environment that genv's shim gave to the container; empty for none.
	EID  snapshot.EnvID
	Init snapshot.PID // the container's first process; 0 if it is unknown or doesn't run
	// Stamp is for Engines.Changed.
	Stamp Stamp
}

// docker is a container in Docker's API, in Podman's copy of it, and in config.v2.json.
type docker struct {
	ID     string
	Name   string
	Config struct {
		Image  string
		Env    []string
		Labels map[string]string
	}
	State struct {
		Running bool
		Pid     snapshot.PID
	}
}

// ParseDocker reads the answer of Docker's API about a container, or config.v2.json in the
// container's folder, which has the same fields. The error says what is wrong with it.
func ParseDocker(data []byte, id string) (Details, error) {
	var d docker
	if err := json.Unmarshal(data, &d); err != nil {
		return Details{}, fmt.Errorf("not understood: %w", err)
	}
	if d.ID != id {
		return Details{}, errors.New("not understood: it is about another container")
	}
	details := Details{
		Name: shortened(strings.TrimPrefix(d.Name, "/")), Image: shortened(d.Config.Image), Labels: d.Config.Labels, EID: claimIn(d.Config.Env),
	}
	if d.State.Running && d.State.Pid > 0 {
		details.Init = d.State.Pid
	}
	return details, nil
}

// bundle is the part of config.json of an OCI bundle that says what a container is.
type bundle struct {
	Process struct {
		Env []string
	}
	Annotations map[string]string
}

// The annotations that say what a container of containerd, nerdctl or CRI-O is called,
// and which image it has.
var (
	nameKeys      = []string{"io.kubernetes.cri.container-name", "io.kubernetes.container.name", "nerdctl/name"}
	podKeys       = []string{"io.kubernetes.cri.sandbox-name", "io.kubernetes.pod.name"}
	namespaceKeys = []string{"io.kubernetes.cri.sandbox-namespace", "io.kubernetes.pod.namespace"}
	imageKeys     = []string{"io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName", "io.container.image.name"}
)

// ParseBundle reads config.json of an OCI bundle, as containerd, CRI-O and Podman keep one
// for each container. A container of Kubernetes is named NAMESPACE/POD/CONTAINER.
func ParseBundle(data []byte) (Details, error) {
	var b bundle
	if err := json.Unmarshal(data, &b); err != nil {
		return Details{}, fmt.Errorf("not understood: %w", err)
	}
	find := func(keys []string) string {
		var found string
		for _, key := range keys {
			found = cmp.Or(found, b.Annotations[key])
		}
		return found
	}
	var names []string
	for _, name := range []string{find(namespaceKeys), find(podKeys), find(nameKeys)} {
		if name != "" {
			names = append(names, name)
		}
	}
	return Details{
		Name: shortened(strings.Join(names, "/")), Image: shortened(find(imageKeys)), Labels: b.Annotations, EID: claimIn(b.Process.Env),
	}, nil
}

// stored is an entry of Podman's containers.json.
type stored struct {
	ID       string   `json:"id"`
	Names    []string `json:"names"`
	Metadata string   `json:"metadata"` // JSON again
}

// ParseStorage reads the name and the image of a container from containers.json of
// containers/storage, which Podman and CRI-O use. Without it there, it is ErrNotFound.
func ParseStorage(data []byte, id string) (name, image string, err error) {
	var list []stored
	if err := json.Unmarshal(data, &list); err != nil {
		return "", "", fmt.Errorf("not understood: %w", err)
	}
	for _, entry := range list {
		if entry.ID != id {
			continue
		}
		var meta struct {
			Image string `json:"image-name"`
			Name  string `json:"name"`
		}
		_ = json.Unmarshal([]byte(entry.Metadata), &meta) // without it, the names alone are known
		if len(entry.Names) > 0 {                         // the metadata keeps the name that it was made with
			meta.Name = entry.Names[0]
		}
		return shortened(meta.Name), shortened(meta.Image), nil
	}
	return "", "", ErrNotFound
}

// claimIn is the environment that the variables of a container name.
func claimIn(environ []string) (eid snapshot.EnvID) {
	for _, entry := range environ {
		if value, found := strings.CutPrefix(entry, snapshot.ClaimVariable+"="); found {
			eid = snapshot.Claim(value) // as in a process, the last one counts
		}
	}
	return eid
}

// maxName is the maximum length of a name or an image, in bytes.
const maxName = 256

func shortened(name string) string { return text.Cut(text.Masked(name), maxName) }
