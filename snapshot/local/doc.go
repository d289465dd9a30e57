// Package local collects snapshots of the machine on which it runs, from three sources: nvidia-smi lists the processes
// on each device, /proc identifies them, and the state files contain the registered environments and attachments.
//
//	collector := &local.Collector{SMI: client, StateFiles: store}
//	s, err := collector.Snapshot(ctx)
//	if err != nil {
//		return err // the state of this machine is unknown, which does not mean that nothing runs
//	}
//
// A source that fails as a whole makes the snapshot fail. Something unknown about one process does not: the process is
// marked, and there is a warning.
//
// Which environment a process is in is asked in this order: its registration, its own environ, its container, the last
// answer, and the nearest ancestor of the same account. See snapshot.Owner.
//
// The order matters. Processes are read first and the state files last: an environment is registered before anything
// runs in it, so an environment that is missing in the files then is not registered, and no new process is misjudged.
// nvidia-smi never runs under the lock of the state files.
//
// The package changes the state files only to register devices. It knows no rules: see package enforce.
package local
