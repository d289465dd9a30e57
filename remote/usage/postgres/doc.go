// Package postgres keeps usage in a PostgreSQL database on a server, for sites that have one. It
// is a store.Store.
//
//	s, err := postgres.Open(ctx, "postgres://genv@db.lab/genv", postgres.Options{Fleet: "lab", In: time.Local})
//	defer s.Close()
//
// One database may have several fleets. A fleet may have several writers: controllers of which
// one leads after the other. An entry is one transaction. Whether one was kept isn't known if the server is lost while it commits (store.ErrUnsure): entries have
// ids, so it may be added again.
package postgres
