package sshd

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/testfleet"
	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
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
