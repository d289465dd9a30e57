// Package sqlite keeps usage in an SQLite database, a single file. It is a store.Store.
//
//	s, err := sqlite.Open(filepath.Join(dir, sqlite.FileName), sqlite.Options{In: time.Local})
//	defer s.Close()
//
// One process writes. Others may read meanwhile (OpenToRead), and neither waits for the other:
// the database has a write-ahead log. An entry is one transaction. After kill -9 all entries are there that Add
// returned for; after a power failure the last ones may be missing, and nothing else.
package sqlite
