// Package testfleet simulates GPU hosts for the demo, for tests and for
// benchmarks: simulated GPUs, genv's state files, and real processes that seem
// to use the GPUs. It needs neither a GPU nor a network other than 127.0.0.0/8.
//
// A Machine is one host, without an SSH server:
//
//	machine, err := testfleet.NewMachine(dir, gpus.H100s("gpu-01", 8), nvidiaSMI)
//	…
//	defer machine.Close()
//	env, err := machine.Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
//	job, err := machine.StartJob(testfleet.Job{
//		User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 500}},
//	})
//
// Two packages below add SSH servers: inprocess, which any user can run, and sshd,
// which needs root, with real OpenSSH, sudo and users.
//
// The package simulates no CUDA and no driver.
package testfleet
