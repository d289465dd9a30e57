package sshd

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Start runs a fleet until the end of the test, or skips the test where none
// can run (see Require). When the test fails it shows sshd's log.
func Start(t testing.TB, options Options) *Fleet {
	t.Helper()
	Require(t)
	f, err := Open(options)
	if err != nil {
		t.Fatalf("start the fleet: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of sshd:\n%s", f.log())
		}
		if err := f.Close(); err != nil {
			t.Errorf("stop the fleet: %v", err)
		}
	})
	return f
}

// Open runs a fleet outside of tests. Close it.
func Open(options Options) (*Fleet, error) {
	dir, err := os.MkdirTemp("", "genv-sshd-")
	if err != nil {
		return nil, err
	}
	f := &Fleet{Client: testfleet.Client{Dir: dir}, options: options}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fleet) open() error {
	defer unix.Umask(unix.Umask(0o022)) // all users read these files
	if err := os.Chmod(f.Dir, 0o755); err != nil {
		return err
	}
	if err := f.install(); err != nil {
		return err
	}
	if err := f.addHosts(); err != nil {
		return err
	}
	covers, err := f.writeAccounts()
	if err != nil {
		return err
	}
	if err := f.writeKeys(); err != nil {
		return err
	}
	return f.startSSHDs(covers)
}

// addHosts gives each host an address, and all of them a port. The addresses
// are random, so that several fleets can run at a time.
func (f *Fleet) addHosts() error {
	network, subnet := 64+rand.IntN(128), rand.IntN(256)
	for i, o := range f.options.Hosts {
		devices := gpus.H100s(o.Name, cmp.Or(o.GPUs, defaultGPUs))
		machine, err := testfleet.NewMachine(filepath.Join(f.Dir, "hosts", o.Name), devices, filepath.Join(f.driver(), "nvidia-smi"))
		if err != nil {
			return err
		}
		machine.Fault, machine.Account = o.Fault, f.account
		f.hosts = append(f.hosts, &Host{
			Machine: machine, Name: o.Name, Address: fmt.Sprintf("127.%d.%d.%d", network, subnet, i+1), User: string(cmp.Or(o.Rights, MaySudo)),
			rights: o.Rights, fleet: f,
		})
	}
	listener, err := net.Listen("tcp", f.hosts[0].Address+":0")
	if err != nil {
		return err
	}
	f.Port = listener.Addr().(*net.TCPAddr).Port
	return listener.Close()
}

// defaultGPUs is how many devices a host has, unless its options say otherwise.
const defaultGPUs = 8

// Build builds a command of this module, such as "cmd/genv", for as long as the
// test lasts, and returns the program's path.
func Build(t testing.TB, command string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), filepath.Base(command))
	if err := testfleet.InstallProgram(command, program); err != nil {
		t.Fatal(err)
	}
	return program
}

// install puts genv and the stand-in for nvidia-smi where hosts look for them:
// in a folder each, for there are hosts with GPUs and without genv.
func (f *Fleet) install() error {
	for _, folder := range []string{f.bin(), f.driver()} {
		if err := os.Mkdir(folder, 0o755); err != nil {
			return err
		}
	}
	if err := testfleet.InstallProgram("remote/testfleet/gpus/nvidia-smi", filepath.Join(f.driver(), "nvidia-smi")); err != nil {
		return err
	}
	if slices.ContainsFunc(f.options.Hosts, func(h HostOptions) bool { return h.Rights == MaySudo143 }) {
		if err := os.Mkdir(f.bin143(), 0o755); err != nil {
			return err
		}
		if err := testfleet.InstallProgram("remote/testfleet/genv143", f.Genv143()); err != nil {
			return err
		}
	}
	if f.options.Genv == "" {
		return nil
	}
	return testfleet.CopyProgram(f.options.Genv, filepath.Join(f.bin(), "genv"))
}

// Require skips the test, with the reason, where no fleet can run.
func Require(t testing.TB) {
	t.Helper()
	err := Available()
	proctest.Need(t, err == nil, fmt.Sprintf("a real sshd, and %v", err))
}

// Available says why no fleet can run on this machine; nil if it can.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("this is not root")
	}
	for _, program := range []string{"sshd", "ssh", "sudo", "mount"} {
		if _, err := find(program); err != nil {
			return err
		}
	}
	out, err := inNamespace(nil, "true").CombinedOutput()
	if err != nil {
		return fmt.Errorf("mount namespaces are not available here: %w: %s", err, out)
	}
	return nil
}

// find looks for a program in PATH and where root's programs are.
func find(program string) (string, error) {
	for _, folder := range []string{"", "/usr/sbin/", "/sbin/", "/usr/local/sbin/"} {
		if path, err := exec.LookPath(folder + program); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s on this machine: `make test` as root installs it on Debian", program)
}
