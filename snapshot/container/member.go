package container

import (
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Member is a process in a container.
type Member struct {
	PID   snapshot.PID
	Start snapshot.StartTime // 0 if it is unknown
	Place proc.Place
	// Rootless says that the process is in a user namespace that UID made.
	Rootless bool
	UID      snapshot.UID
	// Ancestors are those of the process as they were just read; empty if they are older. A
	// container's first process among them needn't be looked for.
	Ancestors []proc.Ancestor
	// InnerNamespace says that it is in another PID namespace than the machine's.
	InnerNamespace bool
}

// inspectable says whether one of root's engines may know the container of the process.
func (m *Member) inspectable() bool {
	return m.Place.ID != "" && m.Place.ID != snapshot.UnnamedContainer && m.Place.Runtime != proc.Apptainer
}

// ofUser says that a user can have made the cgroup or the user namespace of the process.
// That proves nothing for the user: whoever may use root's engine can have a container
// made below another user's slice, or make a user namespace in one as any uid.
func (m *Member) ofUser() bool { return m.Rootless || m.Place.Delegated }

// info is what is known about a member of a container.
func (m *Member) info(e *entry) *snapshot.ContainerInfo {
	switch {
	case m.isIn(e):
		info := e.info
		info.Init = e.init != 0 && e.init == m.PID
		if m.Place.Nested { // who started this one doesn't follow from who started the outer one
			info.UID, info.Proof = nil, ""
		}
		return &info
	case m.Rootless && m.Place.ID != "":
		uid := m.UID
		return &snapshot.ContainerInfo{Runtime: m.Place.Runtime, UID: &uid, Proof: snapshot.ProofRootless}
	}
	return nil
}

// isIn says whether the process is in this container of root's, and not just in a cgroup
// with its name.
func (m *Member) isIn(e *entry) bool {
	switch {
	case !m.inspectable(), e == nil, !e.found:
		return false
	case e.path != "":
		return e.path == m.Place.Path
	case m.ofUser():
		return false
	}
	return !e.info.Unknown || m.InnerNamespace
}
