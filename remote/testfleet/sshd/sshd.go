// Package sshd gives tests and benchmarks a fleet of real hosts, as far as one machine can: OpenSSH's own sshd on
// addresses of 127.0.0.0/8, real sudo, and real processes of several Linux users.
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
// Each address is a host with its own state folder (GENV_TMPDIR) and its own simulated GPUs (GENV_SIM_GPUS), which
// sshd sets by the local address of a session. Users, sudoers and programs are the fleet's own: sshd runs in a mount
// namespace in which they cover the machine's, so nothing on the machine is changed. Processes are not hidden from
// tests.
//
// It needs root, sshd and sudo: see Require. Without these, use package inprocess.
package sshd

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/seed-3119e985/genv/remote/testfleet"
)

// maxListen is how many addresses one sshd listens on: 16 is MAX_LISTEN_SOCKS
// in OpenSSH's sshd.c. A larger fleet is several sshds.
const maxListen = 16

// sshdConfig is for all hosts of one sshd. UsePAM is off, so that the machine's PAM doesn't affect logins.
const sshdConfig = `AddressFamily inet
HostKey %[1]s/host_key
AuthorizedKeysFile %[1]s/authorized_keys
PidFile none
UsePAM no
StrictModes no
UseDNS no
PrintMotd no
PermitRootLogin no
PasswordAuthentication no
KbdInteractiveAuthentication no
LogLevel VERBOSE
MaxStartups 1000
KexAlgorithms curve25519-sha256
`

// writeKeys writes the key of all hosts and the one key that may log in, with the files for a client.
func (f *Fleet) writeKeys() error {
	client, err := testfleet.WriteKey(f.ClientKey())
	if err != nil {
		return err
	}
	host, err := testfleet.WriteKey(filepath.Join(f.Dir, "host_key"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(f.Dir, "authorized_keys"), ssh.MarshalAuthorizedKey(client), 0o644); err != nil {
		return err
	}
	var targets []testfleet.Target
	for _, h := range f.hosts {
		targets = append(targets, testfleet.Target{Name: h.Name, Address: h.Address, User: h.User, Key: host})
	}
	return f.WriteFiles(targets)
}

// startSSHDs starts as many sshds as the fleet needs and waits until each host listens.
func (f *Fleet) startSSHDs(covers []cover) error {
	for first := 0; first < len(f.hosts); first += maxListen {
		hosts := f.hosts[first:min(first+maxListen, len(f.hosts))]
		config := filepath.Join(f.Dir, fmt.Sprintf("sshd_config-%d", first/maxListen))
		if err := os.WriteFile(config, []byte(f.configFor(hosts)), 0o600); err != nil {
			return err
		}
		if err := f.startSSHD(covers, config); err != nil {
			return err
		}
	}
	for i, h := range f.hosts {
		d := f.daemons[i/maxListen]
		if err := await(net.JoinHostPort(h.Address, strconv.Itoa(f.Port)), d.ended); err != nil {
			return fmt.Errorf("sshd does not answer for %s: %w\n%s", h.Name, err, f.log())
		}
	}
	return nil
}

func (f *Fleet) startSSHD(covers []cover, config string) error {
	sshd, err := find("sshd")
	if err != nil {
		return err
	}
	if sshd, err = filepath.Abs(sshd); err != nil { // sshd execs itself for each connection
		return err
	}
	cmd := inNamespace(covers, sshd, "-D", "-f", config, "-E", f.logFile())
	cmd.Env = []string{"PATH=" + systemPath}
	d := &daemon{cmd: cmd, ended: make(chan struct{})}
	cmd.Stderr = &d.stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start sshd: %w", err)
	}
	f.daemons = append(f.daemons, d)
	go func() {
		_ = cmd.Wait() // that it ended is what counts
		close(d.ended)
	}()
	d.namespace, err = namespaceOf(cmd.Process.Pid)
	return err
}

// CutConnections kills the sshd of every connection, as a crash would: clients
// see the connection end, and the commands that they started keep running.
func (f *Fleet) CutConnections() error {
	for _, d := range f.daemons {
		pids, err := d.namespace.processes()
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if pid != d.cmd.Process.Pid && isSSHD(pid) {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			}
		}
	}
	return nil
}

// isSSHD recognizes the sshd of a connection: sshd, or since 9.8 sshd-session.
func isSSHD(pid int) bool {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	return err == nil && strings.HasPrefix(string(name), "sshd")
}

func (f *Fleet) configFor(hosts []*Host) string {
	var b strings.Builder
	fmt.Fprintf(&b, sshdConfig, f.Dir)
	if penalises() {
		b.WriteString("PerSourcePenalties no\n") // all hosts and clients are one source
	}
	if accepted := f.options.AcceptEnv; len(accepted) > 0 {
		fmt.Fprintf(&b, "AcceptEnv %s\n", strings.Join(accepted, " "))
	}
	for _, h := range hosts {
		fmt.Fprintf(&b, "ListenAddress %s:%d\n", h.Address, f.Port)
	}
	for _, h := range hosts {
		// sshd takes the first SetEnv that matches, so it has all variables.
		fmt.Fprintf(&b, "Match LocalAddress %s\n\tSetEnv", h.Address)
		for _, v := range append(append(h.Variables(), "PATH="+h.path()), f.options.Env...) {
			fmt.Fprintf(&b, " %q", v)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// penalises says whether sshd has PerSourcePenalties, as since 9.8.
func penalises() bool {
	sshd, err := find("sshd")
	return err == nil && exec.Command(sshd, "-G", "-f", os.DevNull, "-o", "PerSourcePenalties=no").Run() == nil
}

const startDeadline = 20 * time.Second

// await waits until sshd listens on an address.
func await(address string, ended <-chan struct{}) error {
	deadline := time.After(startDeadline)
	for {
		conn, err := net.DialTimeout("tcp", address, startDeadline)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ended:
			return errors.New("it has ended")
		case <-deadline:
			return err
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// path is where the login looks for programs.
func (h *Host) path() string {
	switch bin, driver := h.fleet.bin(), h.fleet.driver(); h.rights {
	case NoSudo:
		return bin + ":" + driver
	case MaySudo143:
		return h.fleet.bin143() + ":" + driver + ":" + systemPath
	case NoGenv, OnlyUsageNoGenv, OnlySnapshot:
		return driver + ":" + pathWithoutLocal
	default:
		return bin + ":" + driver + ":" + systemPath
	}
}
