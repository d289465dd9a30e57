// Package cgroup finds the container that a process is in by the names of its cgroups. It
// is pure, and asks no runtime: a name is a claim where a user may have made the cgroup
// (Place.Delegated).
//
//	place := cgroup.Parse(data) // of /proc/PID/cgroup
package cgroup
