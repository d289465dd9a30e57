// Package engine asks the container engines of this machine about containers: Docker and
// Podman by their API on root's socket, and otherwise, for containerd, Kubernetes and CRI-O
// too, by the records that root's engine keeps on disk.
//
//	engines := engine.Engines{}
//	details, err := engines.Inspect(ctx, place) // of package cgroup
//	err = engines.Stop(ctx, place, 10*time.Second)
//
// It only reads, except for Stop. It asks no engine of a user: such an engine answers
// whatever its user wants. It doesn't cache, and it doesn't check that a container is the
// one of a process: that is for package container.
//
// The API is that of Docker, spoken with net/http, which genv links anyway.
package engine
