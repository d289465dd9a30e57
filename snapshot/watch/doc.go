// Package watch says when a look at this machine is worth it: a process opened a GPU's
// device node, a process that used a GPU has ended, or the state files have changed.
//
//	w := watch.Open(watch.Config{DevDir: "/dev", StateDirs: []string{"/var/tmp/genv"}})
//	defer w.Close()
//	for w.Wait(ctx) == nil {
//		done := w.Look()
//		s, _ := machine.Snapshot(ctx)
//		done(s)
//	}
//
// Opening is not using: nvidia-smi and every NVML program open all nodes. So an event only
// leads to a look, and never to more. An opener that has ended again is worth no look. That
// holds for the nvidia-smi of a look itself, which has ended when the look is over.
//
// While the kernel guard is on, it reports opens through all nodes of a device, with the PID of
// the opener (OpenLog). With the guard or without, opens of the nodes in DevDir are
// watched by fanotify (Linux 5.13, as root) with that PID, otherwise by inotify without it
// (MethodOf). What can't be watched is said in the log, at debug level, and left to the
// interval between looks.
//
// OpenLog is how the process that keeps the guard says so: guard-opens.json, a small file in root's
// run folder, which all who watch the machine read when it changes. It is replaced as a whole, at
// once after an open and then at most every 100 ms. It has the last 256 opens with a count, so that
// a reader who is late misses none of them without noticing. What is in the file before an
// OpenLogReader begins counts for nothing.
//
// pace.go decides when to look, and is pure. Looks have at least 100 ms between them, and
// fewer follow those that showed nothing new: see there.
package watch
