package proc

import (
	"strconv"
	"strings"
)

// systemContainer is the name of a container of LXC, systemd-nspawn or Apptainer.
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

// machine is the name of a container in a unit in machine.slice: the scope that
// systemd-machined makes, or an instance of a service such as systemd-nspawn@.service.
func machine(unit, child string) (id, runtime string) {
	if child == "supervisor" { // systemd-nspawn itself is not in its container
		return "", ""
	}
	if name, isScope := strings.CutSuffix(unit, ".scope"); isScope {
		name, isMachine := strings.CutPrefix(name, "machine-")
		name = unescape(name)
		if !isMachine || strings.HasPrefix(name, "qemu-") { // of libvirt: the process is the emulator, outside of its machine
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

// apptainer is a container of Apptainer or Singularity. With limits for a container
// (--apply-cgroups and others) they make a cgroup for it, which has the name of a PID;
// those of `apptainer oci` have a name.
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
