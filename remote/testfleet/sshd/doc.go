// Package sshd gives tests and benchmarks a fleet of real hosts, as far as
// one machine can: OpenSSH's own sshd on addresses of 127.0.0.0/8, real sudo,
// and real processes of several Linux users.
//
//	func TestOverSSH(t *testing.T) {
//		fleet := sshd.Start(t, sshd.Options{
//			Hosts: sshd.Named("gpu-01", "gpu-02"),
//			Genv:  sshd.Build(t, "cmd/genv"),
//		})
//		host := fleet.Host("gpu-01")
//		env, err := host.Activate(testfleet.Environment{User: "alice", Devices: []snapshot.DeviceIndex{0}})
//		job, err := host.StartJob(testfleet.Job{
//			User: "alice", Env: []string{env.Var()}, Uses: []testfleet.Use{{Device: 0, MiB: 500}},
//		})
//		…
//		// ssh -F fleet.SSHConfig() gpu-01 sudo -n genv usage snapshot
//	}
//
// Each address is a host with its own state folder (GENV_TMPDIR) and its own
// simulated GPUs (GENV_SIM_GPUS), which sshd sets by the local address of a session.
// Users, sudoers and programs are the fleet's own: sshd runs in a mount namespace in
// which they cover the machine's, so nothing on the machine is changed. Processes are
// not hidden from tests.
//
// It needs root, sshd and sudo: see Require. Without these, use package inprocess.
package sshd
