// Package snapshot is the model of what runs on GPU machines: a Snapshot is the devices, environments and processes of
// one host at one moment; a Cluster is many hosts, each with its Snapshot or the error why there is none. The package
// is pure. It also has the formats in which hosts and controllers exchange snapshots: that of genv 1.4.3
// (DecodeSnapshot) and our own (DecodeNative).
//
// Unknown is never zero and never "no": a value that a host did not report is the zero Memory, a nil pointer, or marked
// by a field named Unknown. Check this before you use the value.
package snapshot
