// Package decision says of a single action why it was decided: with a short id, which is
// the same in the record of a controller and of a host, in mail and on the web page, and
// with the lines of the snapshot that were judged.
//
//	decision.Explain(&report, snapshot, at)          // the lines, for each item
//	id := decision.ID(report.ID, pid, eid, device)   // of an item
//	lines := decision.Record{ID: id, …}.Lines()      // as people read it, everywhere
//
// The lines say nothing about processes of other users. The package is pure.
package decision
