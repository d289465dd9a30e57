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

// Fleet is a set of hosts that listen.
type Fleet struct {
	// Client is how to reach it. All files of the fleet are in Client.Dir, which Close removes.
	testfleet.Client

	options Options
	hosts   []*Host
	daemons []*daemon
}

// Host is a machine of a fleet.
type Host struct {
	*testfleet.Machine
	Name    string
	Address string // 127.x.y.z
	User    string // the login that has the rights

	rights Rights
	fleet  *Fleet
}

// Hosts lists the hosts in the order of the options.
func (f *Fleet) Hosts() []*Host { return f.hosts }

// Host returns the host with a name, or nil.
func (f *Fleet) Host(name string) *Host {
	if i := slices.IndexFunc(f.hosts, func(h *Host) bool { return h.Name == name }); i >= 0 {
		return f.hosts[i]
	}
	return nil
}

func (f *Fleet) logFile() string { return filepath.Join(f.Dir, "sshd.log") }

// log is what sshd and, where it failed to start, mount have printed so far.
func (f *Fleet) log() string {
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

// Close ends sshd, every session, every job, and removes the fleet's folder.
func (f *Fleet) Close() error {
	var err error
	for _, d := range f.daemons {
		err = errors.Join(err, d.stop())
	}
	for _, h := range f.hosts {
		err = errors.Join(err, h.Close())
	}
	return errors.Join(err, os.RemoveAll(f.Dir))
}

func (f *Fleet) bin() string    { return filepath.Join(f.Dir, "bin") }
func (f *Fleet) bin143() string { return filepath.Join(f.Dir, "bin143") }

// Genv143 is the path of the genv on hosts with the rights MaySudo143, if there are any.
func (f *Fleet) Genv143() string         { return filepath.Join(f.bin143(), "genv") }
func (f *Fleet) driver() string          { return filepath.Join(f.Dir, "driver") }
func (f *Fleet) home(user string) string { return filepath.Join(f.Dir, "home", user) }

// Options describe a fleet.
type Options struct {
	Hosts     []HostOptions // the fleet, at least one, at most 250
	AcceptEnv []string      // patterns of the variables that clients may set (sshd_config(5))
	Env       []string      // more variables of each login, as NAME=value
	Genv      string        // the program that the hosts find as genv; empty for none
	// Installable gives the fleet an empty /usr/local, /var/lib and /etc/sudoers.d of its own. sudo reads the last.
	// Without it they are the machine's, and sudo ignores the latter.
	Installable bool
}

// HostOptions describe a host.
type HostOptions struct {
	Name   string
	GPUs   int    // how many devices of 81559 MiB the host has; 0 for 8
	Rights Rights // those of the login that ssh_config names for the host
	Fault  string // how the host's nvidia-smi fails, a gpus.Fault… text; empty for not at all
}

// Named makes hosts with these names and nothing out of the ordinary.
func Named(names ...string) []HostOptions {
	hosts := make([]HostOptions, len(names))
	for i, name := range names {
		hosts[i].Name = name
	}
	return hosts
}

// Rights are what the login on a host may do as root. The login has that name.
type Rights string

// The rights; the zero value is MaySudo.
const (
	MaySudo         Rights = "operator"           // everything, without a password, and genv is there
	NeedsPassword   Rights = "needs-password"     // sudo wants a password, which is Password; sudo -n cannot give it
	NotInSudoers    Rights = "not-in-sudoers"     // sudo does not know the user
	NoSudo          Rights = "no-sudo"            // there is no sudo on the host
	NoGenv          Rights = "no-genv"            // sudo works and there is no genv, not even in /usr/local/bin
	OnlyUsage       Rights = "only-usage"         // what remote.SudoersLine allows, without a password
	OnlyUsageBefore Rights = "only-usage-before"  // as OnlyUsage, with the line of an earlier version, which allows `usage serve` with arguments alone
	OnlySnapshot    Rights = "only-snapshot"      // `genv usage snapshot` alone, without a password; genv is not in the login's path
	MaySudo143      Rights = "operator-143"       // as MaySudo, but the genv on the host speaks the formats of 1.4.3 alone
	AllOfGenv       Rights = "all-of-genv"        // every command of genv, without a password, which is too much
	OnlyUsageNoGenv Rights = "only-usage-no-genv" // what remote.SudoersLine allows, but there is no genv
	FromDirectory   Rights = "ann@corp.example"   // as OnlyUsage, for a name that sudoers can't contain; the line has its uid
	NeedsTTY        Rights = "needs-tty"          // as MaySudo, but sudo refuses a login without a terminal
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

const defaultGPUs = 8 // how many devices a host has, unless its options say otherwise

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
	if out, err := inNamespace(nil, "true").CombinedOutput(); err != nil {
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
