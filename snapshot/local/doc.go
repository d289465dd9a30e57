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
// A process is in the environment that its environ names, if the environ is intact. Otherwise it is in that of its
// nearest registered ancestor, if both belong to the same user: see observer.assign.
//
// The order matters. Processes are read first and the state files last: an environment is registered before anything
// runs in it, so an environment that is missing in the files then is not registered, and no new process is misjudged.
// nvidia-smi never runs under the lock of the state files.
//
// The package changes the state files only to register devices. It knows no rules: see package enforce.
package local
