// Package smi is the shim of nvidia-smi: it runs the real one and shows what of
// its output concerns one environment, that is its devices and processes, with
// the environment's memory capacity as a device's total.
//
// It understands the table, -L, -q (also with -x), --query-gpu and
// --query-compute-apps. Whatever else it is asked (loops, dmon, topo, changes
// of settings …) it hands over to the real program, and when an output isn't
// what it expects, it shows that output unchanged: a shim may show too much, but
// nothing that is wrong. It is a view, not a fence; enforcement doesn't rest on
// it.
//
//	call, ok := smi.Parse([]string{"--query-gpu=name", "--format=csv"})
//	// run nvidia-smi with call.Args(), then
//	out, ok = call.Rewrite(out, view)
//
// Used memory stays that of the whole device: how much of it is whose isn't in
// every output.
package smi
