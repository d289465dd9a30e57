// Package asked keeps the list of the processes of a host that were asked to end, by whom,
// and until when they have time to do so. With it, a process gets SIGTERM once, and its
// grace begins once, also if the controller that asked is replaced by another one meanwhile.
//
//	register := &asked.Register{Path: asked.Path(os.Getenv), BootID: boot, SinceBoot: proc.SinceBoot}
//	turn, earlier, err := register.Begin(asked.Request{By: controller, Report: id, Grace: grace}, processes)
//	// earlier[i] is nil: processes[i] may be asked now
//	err = turn.End(signalled)
//
// The list is about processes of this boot, so it is not synced to the disk: what a crash of
// the machine can lose is over then. It is written before a signal, and again after it.
package asked
