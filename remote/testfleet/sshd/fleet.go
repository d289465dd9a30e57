package sshd

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

// Fleet is a set of hosts that listen.
type Fleet struct {
	// Dir is the fleet's folder, with all its files. It is removed by Close.
	Dir string
	// Port is the TCP port of all hosts.
	Port int

	options Options
	hosts   []*Host
	daemons []*daemon
}

// Host is a host of a fleet.
type Host struct {
	Name    string
	Address string // 127.x.y.z
	User    string // the login that has the Rights
	// Dir is the host's own folder: GPUs and State are in it.
	Dir   string
	GPUs  string // the path of what its nvidia-smi shows, GENV_SIM_GPUS
	State string // the folder of genv's state, GENV_TMPDIR; it may not exist yet

	options HostOptions
	fleet   *Fleet

	mu        sync.Mutex // over the file GPUs, too
	processes []*Process
}

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
			t.Logf("the log of sshd:\n%s", f.Log())
		}
		if err := f.Close(); err != nil {
			t.Errorf("stop the fleet: %v", err)
		}
	})
	return f
}

// Open runs a fleet outside of tests. Close it.
func Open(options Options) (*Fleet, error) {
	if err := options.check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "genv-sshd-")
	if err != nil {
		return nil, err
	}
	f := &Fleet{Dir: dir, options: options}
	if err := f.open(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func (f *Fleet) open() error {
	defer unix.Umask(unix.Umask(0o022))            // all users come here
	if err := os.Chmod(f.Dir, 0o755); err != nil { // all users come here
		return err
	}
	if err := f.install(); err != nil {
		return err
	}
	if err := f.choosePort(); err != nil {
		return err
	}
	for _, h := range f.hosts {
		if err := h.prepare(); err != nil {
			return err
		}
	}
	covers, err := f.writeAccounts()
	if err != nil {
		return err
	}
	if err := f.writeClientFiles(); err != nil {
		return err
	}
	return f.startSSHDs(covers)
}

// choosePort gives each host an address, and all of them a port. The addresses
// are drawn by lot, so that several fleets live side by side.
func (f *Fleet) choosePort() error {
	network, subnet := 64+rand.IntN(128), rand.IntN(256)
	for i, o := range f.options.Hosts {
		f.hosts = append(f.hosts, f.newHost(o, fmt.Sprintf("127.%d.%d.%d", network, subnet, i+1)))
	}
	listener, err := net.Listen("tcp", f.hosts[0].Address+":0")
	if err != nil {
		return err
	}
	f.Port = listener.Addr().(*net.TCPAddr).Port
	return listener.Close()
}

func (f *Fleet) newHost(o HostOptions, address string) *Host {
	dir := filepath.Join(f.Dir, "hosts", o.Name)
	return &Host{
		Name: o.Name, Address: address, User: o.Rights.login(),
		Dir: dir, GPUs: filepath.Join(dir, "gpus.json"), State: filepath.Join(dir, "genv"),
		options: o, fleet: f,
	}
}

// What each host's devices are, unless its options say otherwise.
const (
	defaultGPUs = 8
	gpuName     = "NVIDIA H100 80GB HBM3"
	gpuMiB      = 81559
)

// prepare makes the host's folder, as open to all users as /var/tmp, and its
// GPUs.
func (h *Host) prepare() error {
	if err := os.MkdirAll(h.Dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(h.Dir, 0o777|os.ModeSticky); err != nil {
		return err
	}
	if err := os.Mkdir(h.Root(), 0o755); err != nil {
		return err
	}
	devices := gpus.Devices(h.Name, cmp.Or(h.options.GPUs, defaultGPUs), gpuName, gpuMiB)
	return gpus.Host{Devices: devices}.Write(h.GPUs)
}

// environ is what sshd gives to each session on the host.
func (h *Host) environ() []string {
	environ := []string{
		"PATH=" + h.path(),
		"GENV_TMPDIR=" + h.State,
		"GENV_AUDIT_LOG=" + h.AuditLog(),
		"GENV_ROOT_DIR=" + h.Root(),
		gpus.EnvFile + "=" + h.GPUs,
	}
	if h.options.Fault != "" {
		environ = append(environ, gpus.EnvFault+"="+h.options.Fault)
	}
	return environ
}

// Root is where root's genv keeps its own notes and copies of the state files.
func (h *Host) Root() string { return filepath.Join(h.Dir, "root") }

// AuditLog is where genv on the host records what it does.
func (h *Host) AuditLog() string { return filepath.Join(h.Dir, "log", "audit.jsonl") }

// path is where the login looks for programs.
func (h *Host) path() string {
	switch bin, driver := h.fleet.bin(), h.fleet.driver(); h.options.Rights {
	case NoSudo:
		return bin + ":" + driver
	case NoGenv, NoGenvForLine, OnlySnapshot:
		return driver + ":" + pathWithoutLocal
	default:
		return bin + ":" + driver + ":" + systemPath
	}
}

// Hosts lists the hosts in the order of the options.
func (f *Fleet) Hosts() []*Host { return f.hosts }

// Host returns the host with a name, or nil.
func (f *Fleet) Host(name string) *Host {
	for _, h := range f.hosts {
		if h.Name == name {
			return h
		}
	}
	return nil
}

func (f *Fleet) logFile() string { return filepath.Join(f.Dir, "sshd.log") }

// Log is what sshd and, where it failed to start, mount have said so far.
func (f *Fleet) Log() string {
	data, err := os.ReadFile(f.logFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err.Error()
	}
	for _, d := range f.daemons {
		select {
		case <-d.ended:
			data = append(data, d.stderr.Bytes()...)
		default: // it may still write there
		}
	}
	return string(data)
}

func (h *Host) killAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.processes {
		p.Kill()
	}
}

// Close ends sshd, every session, every job, and removes the fleet's folder.
func (f *Fleet) Close() error {
	var err error
	for _, d := range f.daemons {
		err = errors.Join(err, d.stop())
	}
	for _, h := range f.hosts {
		h.killAll()
	}
	return errors.Join(err, os.RemoveAll(f.Dir))
}
