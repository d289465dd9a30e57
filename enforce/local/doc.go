// Package local carries out an order on this machine: it detaches environments
// from devices, ends processes, and returns the outcome of each item.
//
//	machine := &snapshotlocal.Collector{SMI: client, StateFiles: store} // of snapshot/local
//	x := local.New(machine, store, local.ExecutorOptions{Grace: 10 * time.Second})
//	for _, outcome := range x.Execute(ctx, order) {
//		fmt.Println(outcome.PID, outcome.Status, outcome.Reason)
//	}
//
// It doesn't decide which process must end: package enforce did, from a snapshot that is some time old. So a process
// is only signalled if it still is what was judged. First it is opened by a pidfd; then the GPUs and /proc are read
// again; and only if the pidfd's process was alive all that time, and has the start time, devices and environment of
// the order, the signal is sent through that same pidfd. A process that reuses the PID can't receive it. On a kernel
// without pidfds, the start time is read once more right before kill(2).
//
// Some processes are never signalled, whatever an order contains: PID 1, kernel threads, genv itself and its
// ancestors, and system daemons (see safety.Protected).
//
// Each step is complete in itself: if genv dies halfway, there is nothing to
// repair, and the next cycle starts from a new snapshot.
package local
