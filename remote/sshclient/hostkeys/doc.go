// Package hostkeys checks a host's key against known_hosts files as OpenSSH
// does: hashed names, wildcards, ports, @cert-authority, @revoked, several
// files. A line that cannot be read is skipped with a warning, names are
// compared in lower case, and a file that changes is read again.
//
// It differs from OpenSSH where that is safer: a revoked key is revoked for
// every host, and a host with known keys of other types only counts as changed,
// so that `accept-new` never adds a second key to a known host.
//
//	store := hostkeys.NewStore(log)
//	db, err := store.Load("/home/alice/.ssh/known_hosts")
//	config.HostKeyAlgorithms = db.Algorithms("gpu-07:22", hostConfig.HostKeyAlgorithms)
//	err = db.Check("gpu-07:22", key) // *Unknown, *Changed
package hostkeys
