// Package inprocess makes simulated GPU hosts reachable: SSH servers inside this
// process on loopback addresses. It needs no root, no sshd and no network but
// 127.0.0.0/8, and its hosts can fail in ways that a real sshd cannot.
//
// A Server checks the client's key and hands each command line to its Handler.
// Start writes a client key, known_hosts and ssh_config into a folder, so that any
// SSH client can connect:
//
//	fleet, err := inprocess.Start(dir, 0, &inprocess.Server{
//		Name: "gpu-01", Address: "127.77.0.1", Handler: &inprocess.Exec{Machine: machine},
//	})
//	…
//	defer fleet.Close()
//	// genv remote -F dir/ssh_config -H gpu-01 devices
//
// There are no users: all commands run as the caller.
package inprocess
