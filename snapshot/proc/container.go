package proc

import (
	"github.com/seed-3119e985/genv/snapshot"
)

// Container is the process's container according to its cgroup, or one with the ID
// snapshot.UnnamedContainer if only its PID namespace, which is not that of PID 1, shows
// that it is in a container. It is empty if the process is in none, or if the kernel
// doesn't show it.
//
// Users can put their own processes into a cgroup with any name, or into a PID
// namespace, but not the processes of other users, and they can't leave a PID
// namespace. So a container may remove an exemption, but never grants one.
func (h *Handle) Container(c Credentials) Place {
	if data, err := h.read("cgroup", smallLimit); err == nil {
		if place := ParsePlace(data); place.ID != "" {
			return place
		}
	}
	if c.InnerNamespace {
		return Place{ID: snapshot.UnnamedContainer}
	}
	return Place{}
}
