// Package hostkeys decides on a host's key as OpenSSH does: known_hosts files with
// hashed names, patterns, ports, @cert-authority and @revoked, and KnownHostsCommand. A host certificate that is not accepted counts as the key in
// it, and a host that is not known with its port is looked up without. A file that
// changes is read again; one that can't be read, or a bad line, is skipped with a
// warning, and refuses only hosts whose key is not found elsewhere.
//
// It differs from OpenSSH where that is safer: a key that is revoked for the name
// without its port is never accepted, and `accept-new` adds no key while one of the
// host's files can't be read.
//
//	store := hostkeys.NewStore(log)
//	host := store.Lookup([]string{"/home/alice/.ssh/known_hosts"}, hostkeys.Name{Host: "gpu-07", Port: 22})
//	config.HostKeyAlgorithms = host.Algorithms(hostConfig.HostKeyAlgorithms)
//	err := host.Check(key, rules, time.Now()) // *Unknown, *Changed
//
// The package asks no DNS, and opens no connection.
package hostkeys
