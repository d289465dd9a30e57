// Package container finds out what the containers of GPU processes are, and who started
// them: from the kernel, from what root's hook has recorded, and from root's container
// engines. Nothing comes from the container itself.
//
//	source := &container.Source{Engines: engine.Engines{}, Run: "/run/genv"}
//	infos := source.Look(ctx, members) // one for each member, nil for what is no container of root's
//
// It is for root only. Answers are kept for as long as a container's first process lives,
// so that a look which finds no new process costs nothing. An engine that doesn't answer
// delays a look once, for a moment, and then is left alone for a while.
//
// The packages below it are of two kinds. cgroup reads the names of cgroups and engine asks
// engines: both are for finding out about containers that run. oci, grant, token and restart
// are for starting one with GPUs: see package grant first. record is what the second
// kind leaves for the first.
package container
