// Package service is the socket of root's service on a GPU host where root owns the state:
// people's commands ask over it for changes (package change), and for root's view of the
// devices. docs/host.md describes what is said on it.
//
//	server := &service.Server{Backend: backend, …}
//	err := server.Serve(ctx, listener)               // as root
//	result, err := service.Client{Path: path}.Change(ctx, c)
//
// Who asks is what the kernel reports about the other end of the connection, held by a
// pidfd: nothing of a request says so. What a user may do is decided by package change.
//
// A Changer applies changes to the state files of this host, in the process of the person who asks
// and in root's service alike: with the lock of the files, and after asking nvidia-smi where devices
// are missing. It decides nothing: who may change what is decided by package change.
//
//	result, err := service.Changer{Store: store, …}.Change(ctx, c, asker)
//
// One user can't delay others: connections, requests and their rate are bounded for each
// user, what is too much is refused at once, and users take turns at the state files.
package service
