// Package genvhost is genv on a simulated host, inside this process: an
// inprocess.Handler that answers `genv usage serve`, `snapshot` and `execute`
// from a snapshot in memory, and carries reports out on it. It starts no process,
// so that a thousand hosts fit on a small machine, and it fails on demand (see
// Behavior).
//
//	host := genvhost.New(&snapshot.Snapshot{Devices: …})
//	fleet, err := inprocess.Start(dir, 0, &inprocess.Server{Name: "a", Address: "127.7.0.1", Handler: host})
//	…
//	host.Change(func(s *snapshot.Snapshot) { s.Processes = append(s.Processes, p) })
//	host.Actions() // what it was asked to do
//
// It has no real processes: one that a report names is removed from the snapshot,
// if it is the one that was judged. For real processes see inprocess.Exec.
package genvhost
