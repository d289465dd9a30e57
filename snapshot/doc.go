// Package snapshot is the model of what runs on GPU machines: the devices of a host, the environments they are attached
// to, and the processes that use them. A Snapshot is one host at one moment; a Cluster is many hosts, each with its
// Snapshot or with the error why there is none.
//
// The package is pure: it reads no clock and no file, and runs no program. It also contains the two formats in which
// hosts and controllers exchange snapshots: that of genv 1.4.3 (see DecodeSnapshot) and our own (see DecodeNative). The
// packages below this one read a real machine: snapshot/nvidiasmi, snapshot/proc, snapshot/state and, based on these
// three, snapshot/local.
//
// Unknown is never zero and never "no": a value that a host did not report is the zero Memory, a nil pointer, or marked
// by a field named Unknown. Check this before you use the value.
package snapshot
