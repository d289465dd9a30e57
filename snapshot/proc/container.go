package proc

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/text"
)

// Container is the id of the process's container according to its cgroup (see
// ParseContainer), or snapshot.UnnamedContainer if only its PID namespace, which is not
// that of PID 1, shows that it is in a container. It is empty if the process is in none,
// or if the kernel doesn't show it.
//
// Users can put their own processes into a cgroup with any name, or into a PID
// namespace, but not the processes of other users, and they can't leave a PID
// namespace. So a container may remove an exemption, but never grants one.
func (h *Handle) Container(c Credentials) string {
	if data, err := h.read("cgroup", smallLimit); err == nil {
		if id := ParseContainer(data); id != "" {
			return id
		}
	}
	if c.InnerNamespace {
		return snapshot.UnnamedContainer
	}
	return ""
}

// ParseContainer finds the id of a container in /proc/PID/cgroup (cgroups(7)), as made
// by Docker, Podman, containerd, CRI-O, Kubernetes, LXC or systemd-nspawn. With nested
// containers it is the outermost one. Slices, services, and the scopes of users and of
// batch systems are not containers.
func ParseContainer(data []byte) string {
	for line := range bytes.Lines(data) {
		// hierarchy:controllers:path; the path may hold colons.
		fields := bytes.SplitN(bytes.TrimSuffix(line, []byte("\n")), []byte(":"), 3)
		if len(fields) != 3 {
			continue
		}
		if id := containerOf(strings.Split(string(fields[2]), "/")); id != "" {
			return text.Cut(text.Masked(id), maxContainer)
		}
	}
	return ""
}

// containerOf is the id that a cgroup's path names, or "".
func containerOf(path []string) string {
	parent := ""
	for i, name := range path {
		child := ""
		if i+1 < len(path) {
			child = path[i+1]
		}
		if id := cmp.Or(containerID(name), systemContainer(parent, name, child)); id != "" {
			return id
		}
		parent = name
	}
	return ""
}

// containerID is the id in names such as ID, docker-ID.scope, libpod-ID and
// kubepods-….slice:cri-containerd:ID: 64 hexadecimal digits.
func containerID(name string) string {
	name = strings.TrimSuffix(name, ".scope")
	at := strings.LastIndexAny(name, "-:")
	id := name[at+1:]
	if len(id) != 64 || strings.Trim(id, "0123456789abcdef") != "" {
		return ""
	}
	if at < 0 || name[at] == ':' {
		return id
	}
	switch name[:at] {
	case "docker", "libpod", "cri-containerd", "containerd", "crio", "nerdctl":
		return id
	}
	return "" // a monitor (libpod-conmon, crio-conmon), or a user's own name
}

// systemContainer is the name of a container of LXC or systemd-nspawn.
func systemContainer(parent, name, child string) string {
	switch {
	case parent == "lxc", parent == "lxc.payload":
		return name
	case strings.HasPrefix(name, "lxc.payload."):
		return strings.TrimPrefix(name, "lxc.payload.")
	case parent != "machine.slice":
		return ""
	case strings.HasPrefix(name, "systemd-nspawn@") && strings.HasSuffix(name, ".service") && child == "payload":
		return unescape(strings.TrimSuffix(strings.TrimPrefix(name, "systemd-nspawn@"), ".service"))
	case strings.HasPrefix(name, "machine-") && strings.HasSuffix(name, ".scope"):
		machine := unescape(strings.TrimSuffix(strings.TrimPrefix(name, "machine-"), ".scope"))
		if strings.HasPrefix(machine, "qemu-") { // of libvirt: the process is the emulator, outside of its machine
			return ""
		}
		return machine
	}
	return ""
}

// unescape undoes systemd.unit(5)'s \xNN.
func unescape(name string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(name, `\x`)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		code, err := strconv.ParseUint(after[:min(2, len(after))], 16, 8)
		if err != nil || len(after) < 2 {
			b.WriteString(`\x`)
			name = after
			continue
		}
		b.WriteByte(byte(code))
		name = after[2:]
	}
}

// maxContainer is the maximum length of a container's id, in bytes.
const maxContainer = 128
