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
// Each address is a host, with its own state folder (GENV_TMPDIR) and its own
// simulated GPUs (GENV_SIM_GPUS), which sshd hands to each session by its local
// address. Users, sudoers and programs are the fleet's own: sshd runs in a
// mount namespace in which they cover the machine's. So nothing on the machine
// is changed, and all is gone after Close. Processes are not hidden: tests see
// what hosts see.
//
// It needs root, sshd and sudo, and says so: see Require. Where these are not
// at hand, package inprocess has hosts inside the test's own process, which can also
// misbehave in ways that sshd cannot.
package sshd
