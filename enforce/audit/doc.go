// Package audit keeps the audit log: an append-only file of JSON lines, one
// Record each, of what was found, decided and done.
//
//	log := audit.Log{Path: "/var/log/genv/audit.jsonl"}
//	err := log.Append(audit.Record{Time: now, Kind: audit.KindFinding, …})
//	entries, damage, err := audit.History(log.Path, audit.Filter{User: "bob"})
//
// Append returns when the records are on the disk. Records that could not be
// written are kept in memory and written first the next time, so that an outcome
// is not lost when the disk is full. A caller that must not act without a record
// calls Reserve first.
//
// A file that reaches its maximum size is rotated. Several programs, such as two
// controllers, may append to the same file.
//
// On a GPU host each user also has a log of what concerns that user alone, which
// only root and that user can read: see UserLogPath.
//
// The package only records: it neither decides nor notifies.
package audit
