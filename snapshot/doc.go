// Package snapshot is the model of what runs on GPU machines: the devices of a
// host, the environments they are attached to, and the processes that use
// them. A Snapshot is one host at one moment; a Cluster is many hosts, each
// with its Snapshot or with the error that stands in its place.
//
// The package is pure: it holds no clock, reads no file and runs no program.
// It also holds the codec of genv 1.4.3 (see DecodeSnapshot), the format in
// which hosts and controllers of both generations understand each other.
// Reading a real machine is the work of the packages below this one:
// snapshot/nvidiasmi, snapshot/proc, snapshot/state and, over these three,
// snapshot/local.
//
// Unknown is never zero and never "no": a value that a host could not tell is
// the zero Memory, a nil pointer, or a field named Unknown, and whoever judges
// must ask before it counts.
package snapshot
