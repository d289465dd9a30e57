package proc

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Runtimes in the names of cgroups. Docker and containerd may also use bare ids, which show none.
const (
	Docker     = "docker"
	Podman     = "podman"
	Containerd = "containerd"
	CRIO       = "cri-o"
	LXC        = "lxc"
	Nspawn     = "systemd-nspawn"
	Apptainer  = "apptainer"
)

// Cgroup is the container of a cgroup. The zero Cgroup is none.
type Cgroup struct {
	ID        string // the container's id or name, safe to show, at most 128 bytes
	Runtime   string // a constant above; empty if the name doesn't show it
	Path      string // of the container's cgroup, the same for all its processes
	Delegated bool   // below a user's session or service: a user may have chosen the name
	// Nested says that another container's cgroup is below it. An engine in this container made it, or a user gave this
	// one as parent to a container of root's engine.
	Nested bool
}

// ParsePlace finds the outermost container in /proc/PID/cgroup (cgroups(7), v1, v2 and hybrid) by names, which are
// claims if Delegated.
func ParsePlace(data []byte) Cgroup {
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
	return Cgroup{}
}

func placeIn(path string) Cgroup {
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
			return Cgroup{
				ID: text.Cut(text.Masked(id), maxContainer), Runtime: runtime, Path: path[:length],
				Delegated: delegated, Nested: isNested(names[i:]),
			}
		}
		delegated = delegated || isOfUser(name)
		parent = name
		length++ // the slash
	}
	return Cgroup{}
}

func isNested(names []string) bool {
	for i, name := range names[1:] {
		if id, _ := containerID(names[i], name); id != "" {
			return true
		}
	}
	return false
}

// isOfUser says whether systemd made a cgroup for a user (user-1000.slice, user@1000.service).
func isOfUser(name string) bool {
	for prefix, suffix := range map[string]string{"user-": ".slice", "user@": ".service"} {
		uid, begins := strings.CutPrefix(name, prefix)
		uid, ends := strings.CutSuffix(uid, suffix)
		if _, err := strconv.ParseUint(uid, 10, 32); begins && ends && err == nil {
			return true
		}
	}
	return false
}

// containerID finds the id of 64 hexadecimal digits in names such as ID, docker-ID.scope, libpod-ID and
// kubepods-….slice:cri-containerd:ID.
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

var byPrefix = map[string]string{
	"docker": Docker, "libpod": Podman, "libpod-payload": Podman, "cri-containerd": Containerd,
	"containerd": Containerd, "nerdctl": Containerd, "crio": CRIO,
}

const maxContainer = 128 // bytes of a container's id

// Container is the process's container by its cgroup, or snapshot.UnnamedContainer if only its PID namespace shows one;
// empty for none, or if the kernel doesn't show it. Users can choose the cgroup and PID namespace of their processes:
// a container may remove an exemption, but never grants one.
func (h *Handle) Container() Cgroup {
	place := h.Place()
	if place.ID == "" && h.InInnerNamespace() {
		place.ID = snapshot.UnnamedContainer
	}
	return place
}

// Place is the process's container by its cgroup alone.
func (h *Handle) Place() Cgroup {
	data, err := readAt(h.dir, "cgroup", smallLimit+1)
	if err != nil || len(data) > smallLimit {
		return Cgroup{}
	}
	return ParsePlace(data)
}

func systemContainer(parent, name, child string) (id, runtime string) {
	switch {
	case parent == "lxc", parent == "lxc.payload":
		return name, LXC
	case strings.HasPrefix(name, "lxc.payload."):
		return strings.TrimPrefix(name, "lxc.payload."), LXC
	case parent == "machine.slice":
		return machine(name, child)
	}
	return apptainer(parent, name)
}

// machine finds the container of a unit in machine.slice: a scope of systemd-machined, or an instance of a service,
// such as systemd-nspawn@.service.
func machine(unit, child string) (id, runtime string) {
	if child == "supervisor" { // systemd-nspawn itself, outside its container
		return "", ""
	}
	if name, isScope := strings.CutSuffix(unit, ".scope"); isScope {
		name, isMachine := strings.CutPrefix(name, "machine-")
		name = unescape(name)
		if !isMachine || strings.HasPrefix(name, "qemu-") { // libvirt's emulator
			return "", ""
		}
		return name, Nspawn
	}
	name, isService := strings.CutSuffix(unit, ".service")
	if _, instance, found := strings.Cut(name, "@"); found && isService && child == "payload" {
		return unescape(instance), Nspawn
	}
	return "", ""
}

// apptainer finds Apptainer and Singularity. With limits (--apply-cgroups and others) a PID names the cgroup;
// containers of `apptainer oci` have a name.
func apptainer(parent, name string) (id, runtime string) {
	of, rest := parent, name
	if scope, isScope := strings.CutSuffix(name, ".scope"); isScope {
		at := strings.IndexByte(scope, '-')
		if oci := strings.Index(scope, "-oci-"); oci == at && oci >= 0 {
			at += len("-oci")
		}
		if at < 0 {
			return "", ""
		}
		of, rest = scope[:at], scope[at+1:]
	}
	switch of {
	case "apptainer", "singularity":
		pid := strings.TrimPrefix(rest, "parent-")
		if _, err := strconv.ParseUint(pid, 10, 31); err == nil {
			return "apptainer-" + pid, Apptainer
		}
	case "apptainer-oci", "singularity-oci":
		if rest != "" {
			return "apptainer-oci-" + rest, Apptainer
		}
	}
	return "", ""
}

// unescape decodes \xNN of systemd.unit(5).
func unescape(name string) string {
	return escaped().ReplaceAllStringFunc(name, func(code string) string {
		n, _ := strconv.ParseUint(code[2:], 16, 8) // the pattern matched
		return string([]byte{byte(n)})
	})
}

var escaped = text.Pattern(`\\x[0-9A-Fa-f]{2}`)
