// Package election says which of several controllers may act, by a key in etcd.
//
//	elector := election.New(election.Options{Cluster: client, Key: "/genv/lab", Self: self, Clock: clock})
//	go elector.Run(ctx)
//	if elector.Leads() { … }
//
// The leader is the one that made the key KEY/leader, which depends on its lease. The revision
// of the cluster in which the key was made is its epoch: each later leader has a higher one. A
// leader that can't renew its lease leads until the lease would have ended, counted from when the
// last renewal that a majority of etcd's members confirmed was sent; so it has stopped before etcd
// lets another one lead.
//
// Each controller, also a standby, is registered while it runs: see Registrar and Registered.
//
// State decides, and is pure; Elector asks etcd and keeps the time. What a leader does, and
// that hosts refuse one that was replaced, is decided elsewhere (remote/agent/fence).
package election
