// Package container finds out what the containers of GPU processes are, and who started
// them: from the kernel, from what root's hook has recorded, and from root's container
// engines. Nothing comes from the container itself.
//
//	source := &container.Source{Engines: container.Engines{}, Run: "/run/genv"}
//	infos := source.Look(ctx, members) // one for each member, nil for what is no container of root's
//
// It is for root only. Answers are kept for as long as a container's first process lives,
// so that a look which finds no new process costs nothing. An engine that doesn't answer
// delays a look once, for a moment, and then is left alone for a while.
//
// Engines asks Docker and Podman by their API (spoken with net/http) on root's socket, and
// otherwise, for containerd, Kubernetes and CRI-O too, reads the records that root's engine keeps
// on disk. It asks no engine of a user: such an engine answers whatever its user wants. Except for
// Stop it only reads.
//
// A Record is what root's hook knows about a started container: in which environment it was
// started, and for which user if that was proved. There is one file for each container,
// <run>/containers/ID.json, which only root can write and everybody may read. A container that is
// restarted has its ID again, so that the hook replaces the record at each start:
//
//	err := container.WriteRecord("/run/genv", container.Record{ID: id, EID: eid, UID: &uid, Proof: container.ProofToken, Runtime: "docker", StartedAt: now})
//	r, err := container.ReadRecord("/run/genv", id)
//
// Starting a container with GPUs is for packages oci and grant.
package container
