// Package audit keeps the record of what was found, decided and done: an
// append-only file of JSON lines, one Record each.
//
//	log := audit.Log{Path: "/var/log/genv/audit.jsonl"}
//	err := log.Append(audit.Record{Time: now, Kind: audit.KindFinding, …})
//	entries, damage, err := audit.History(log.Path, audit.Filter{User: "bob"})
//
// Append returns when the records are on the disk. What could not be written is
// kept in memory and written first the next time, so that an outcome outlives a
// full disk; whoever acts only on the record asks Reserve first.
//
// The file grows to a size and is then rotated. Several programs may append to
// it at a time, as several controllers do on a host.
//
// On a host there is also a file for each user, with what concerns that user
// alone, which only root and that user can read: see Users.
package audit
