package proc

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot/text"
)

// The runtimes that the name of a cgroup shows. Docker's and containerd's containers may
// also have bare ids, which show none.
const (
	Docker     = "docker"
	Podman     = "podman"
	Containerd = "containerd"
	CRIO       = "cri-o"
	LXC        = "lxc"
	Nspawn     = "systemd-nspawn"
	Apptainer  = "apptainer"
)

// Place is the container that a cgroup belongs to. The zero Place means none.
type Place struct {
	// ID is the container's id or name, safe to show, and at most 128 bytes long.
	ID      string
	Runtime string // one of the constants, or empty if the name doesn't show it
	// Path is the path of the container's cgroup: two processes are in the same container
	// only if it is the same.
	Path string
	// Delegated says that the cgroup is below that of a user's session or service: a user
	// may have made it, with any name.
	Delegated bool
	// Nested says that a cgroup with the name of another container is below that of this
	// one: an engine in it has made that, or whoever gave it as a parent to a container of
	// root's engine.
	Nested bool
}

// ParsePlace finds the container of a process in /proc/PID/cgroup (cgroups(7), v1, v2 and
// hybrid), as made by Docker, Podman, containerd, nerdctl, CRI-O, Kubernetes, LXC,
// systemd-nspawn or Apptainer. With nested containers it is the outermost one. Slices,
// services, and the scopes of users and of batch systems are not containers.
func ParsePlace(data []byte) Place {
	for line := range bytes.Lines(data) {
		// hierarchy:controllers:path; the path may hold colons.
		fields := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(":"), 3)
		if len(fields) != 3 {
			continue
		}
		if place := placeIn(string(fields[2])); place.ID != "" {
			return place
		}
	}
	return Place{}
}

// placeIn is the container that a cgroup's path names.
func placeIn(path string) Place {
	names := strings.Split(path, "/")
	parent, length, delegated := "", 0, false
	for i, name := range names {
		child := ""
		if i+1 < len(names) {
			child = names[i+1]
		}
		length += len(name)
		id, runtime := containerID(parent, name)
		if id == "" {
			id, runtime = systemContainer(parent, name, child)
		}
		if id != "" {
			return Place{ID: text.Cut(text.Masked(id), maxContainer), Runtime: runtime, Path: path[:length], Delegated: delegated, Nested: isNested(names[i:])}
		}
		delegated = delegated || isOfUser(name)
		parent = name
		length++ // the slash
	}
	return Place{}
}

// isNested says whether a container is named below the first cgroup.
func isNested(names []string) bool {
	for i, name := range names[1:] {
		if id, _ := containerID(names[i], name); id != "" {
			return true
		}
	}
	return false
}

// isOfUser says whether a cgroup is one that systemd makes for a user (user-1000.slice,
// user@1000.service).
func isOfUser(name string) bool {
	uid, isSlice := strings.CutSuffix(name, ".slice")
	uid, isSlice = cutPrefix(uid, "user-", isSlice)
	if !isSlice {
		uid, isSlice = strings.CutSuffix(name, ".service")
		uid, isSlice = cutPrefix(uid, "user@", isSlice)
	}
	_, err := strconv.ParseUint(uid, 10, 32)
	return isSlice && err == nil
}

func cutPrefix(s, prefix string, ok bool) (string, bool) {
	rest, found := strings.CutPrefix(s, prefix)
	return rest, ok && found
}

// containerID is the id in names such as ID, docker-ID.scope, libpod-ID and
// kubepods-….slice:cri-containerd:ID: 64 hexadecimal digits.
func containerID(parent, name string) (id, runtime string) {
	name = strings.TrimSuffix(name, ".scope")
	at := strings.LastIndexAny(name, "-:")
	id = name[at+1:]
	if len(id) != 64 || strings.Trim(id, "0123456789abcdef") != "" {
		return "", ""
	}
	switch {
	case at < 0 && parent == "docker":
		return id, Docker
	case at < 0:
		return id, ""
	case name[at] == ':':
		return id, byPrefix[name[strings.LastIndexByte(name[:at], ':')+1:at]]
	}
	if runtime = byPrefix[name[:at]]; runtime == "" {
		return "", "" // a monitor (libpod-conmon, crio-conmon), or a user's own name
	}
	return id, runtime
}

// byPrefix are the runtimes by what they put before the ids.
var byPrefix = map[string]string{
	"docker": Docker, "libpod": Podman, "libpod-payload": Podman, "cri-containerd": Containerd, "containerd": Containerd, "nerdctl": Containerd, "crio": CRIO,
}

// maxContainer is the maximum length of a container's id, in bytes.
const maxContainer = 128
