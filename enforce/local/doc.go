// Package local carries out a report on this machine: it detaches environments
// from devices and ends processes, and tells what came of each item.
//
//	machine := &snapshotlocal.Machine{SMI: client, Books: store} // of snapshot/local
//	x := local.New(machine, store, local.ExecutorOptions{Grace: 10 * time.Second, OnAction: say})
//	for _, outcome := range x.Execute(ctx, report) {
//		fmt.Println(outcome.PID, outcome.Status, outcome.Reason)
//	}
//
// It judges nothing: which process must go was decided by package enforce, from
// a snapshot that is old by now. So nothing is signalled unless it is still what
// was judged. A process is held by a pidfd first; then the GPUs are asked again,
// and /proc; and only if the pidfd's process lived all along, and its start time,
// devices and environment are those of the report, the signal goes through that
// same pidfd. A PID that was reused meanwhile can't receive it.
//
// Some processes are never signalled, whatever a report says: PID 1, kernel
// threads, genv itself and all it descends from, and daemons that carry a
// machine (see enforce.Protected).
//
// Every step stands alone: an executor that dies halfway leaves nothing to be
// repaired, and the next cycle judges what is there then.
package local
