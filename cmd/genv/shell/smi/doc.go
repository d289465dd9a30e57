// Package smi is the shim of nvidia-smi: it runs the real one and shows what of
// its output concerns one environment, that is its devices and processes, with
// the environment's memory capacity as a device's total.
//
// It understands the table, -L, -q (also with -x), --query-gpu and
// --query-compute-apps. For all else (loops, dmon, topo, changes of settings …) the
// real program replaces it, and an output that it doesn't understand is shown
// unchanged: a shim may show too much, but nothing that is wrong. Enforcement doesn't
// depend on it.
//
//	call, ok := smi.Parse([]string{"--query-gpu=name", "--format=csv"})
//	// run nvidia-smi with call.Args(), then
//	out, ok = call.Rewrite(out, view)
//
// In the table, the used memory of a device is that of the environment's processes. Elsewhere
// it stays that of the whole device: not every output has the memory of each process.
package smi
