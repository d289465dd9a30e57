// Package store keeps usage in a database: by default in an SQLite database, a single file, and for
// controllers that share one history on a PostgreSQL server.
//
//	s, err := store.Open(ctx, filepath.Join(dir, store.FileName), store.Options{In: time.Local})
//	s, err := store.Open(ctx, "postgres://genv@db.lab/genv", store.Options{Fleet: "lab", In: time.Local})
//	defer s.Close()
//
// Both have the same tables and statements; where the databases differ, package-internal drivers say
// how. An entry is one transaction.
//
// One process writes to a file. Others may read meanwhile (OpenToRead), and neither waits for the other:
// the database has a write-ahead log. After kill -9 all entries are there that Add returned for; after
// a power failure the last ones may be missing, and nothing else.
//
// A database on a server may have several fleets, and a fleet several writers: controllers of which one
// leads after the other. Whether an entry was kept isn't known if the server is lost while it commits
// (usage.ErrUnsure): entries have ids, so it may be added again.
package store
