// Package sim is an embedded fleet of GPU hosts for the demo, for tests and for
// benchmarks: SSH servers inside this process on loopback addresses, simulated
// GPUs, and real processes that seem to use them. It needs no root, no GPU, no
// sshd and no network but 127.0.0.0/8.
//
// A Fleet is the outside of the hosts: it listens, checks the client's key and
// hands each command line to the host's Handler. It writes a client key,
// known_hosts and ssh_config into a folder, so that any SSH client can use it:
//
//	fleet, err := sim.Start(sim.Options{Dir: dir, Hosts: []sim.HostOptions{
//		{Name: "gpu-01", Address: "127.77.0.1", Handler: &sim.Exec{Genv: genv, Machine: machine}},
//	}})
//	…
//	defer fleet.Close()
//	// genv remote -F dir/ssh_config -H gpu-01 devices
//
// A Machine is the inside of one host: a folder with its GPUs (package gpus),
// genv's state files and jobs, which are real processes. It serves without a
// Fleet too, for example behind a real sshd.
//
// The package simulates no CUDA, no driver and no users: all processes belong
// to the caller, whatever name the state files give their environments.
package sim
