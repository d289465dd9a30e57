// Package inprocess makes simulated GPU hosts reachable: SSH servers inside this
// process on loopback addresses. It needs no root, no sshd and no network but
// 127.0.0.0/8, and its hosts can fail in ways that a real sshd cannot.
//
// A Fleet listens, checks the client's key and hands each command line to the
// host's Handler. It writes a client key, known_hosts and ssh_config into a
// folder, so that any SSH client can use it:
//
//	fleet, err := inprocess.Start(inprocess.Options{Dir: dir, Hosts: []inprocess.HostOptions{
//		{Name: "gpu-01", Address: "127.77.0.1", Handler: &inprocess.Exec{Genv: genv, Machine: machine}},
//	}})
//	…
//	defer fleet.Close()
//	// genv remote -F dir/ssh_config -H gpu-01 devices
//
// There are no users: all processes belong to the caller, whatever name the
// state files give their environments.
package inprocess
