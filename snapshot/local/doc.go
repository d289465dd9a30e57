// Package local takes the snapshot of the machine it runs on, out of three
// sources: nvidia-smi says which processes use which devices, /proc who and
// what they are, and the state files which environments are
// registered and what is attached to them.
//
//	machine := &local.Machine{SMI: client, Books: store}
//	s, err := machine.Snapshot(ctx)
//	if err != nil {
//		return err // nothing is known of this machine now, which is not "nothing runs"
//	}
//
// A source that fails as a whole makes the snapshot fail. What cannot be told
// of one process does not: that process is marked, and a warning says so.
//
// A process is in the environment that its environ names, if that is intact.
// Otherwise it is in that of its nearest registered ancestor, if both belong to
// the same user: see assign.
//
// The order matters. Processes are asked for first and the state files are read
// last, because an environment is registered before anything runs in it: what is
// missing in the files then is not registered, and no new process is misjudged.
// nvidia-smi never runs while the state files are locked.
//
// The package changes one thing only: it adds devices that the state files do not
// have yet. It judges nobody: that is package enforce.
package local
