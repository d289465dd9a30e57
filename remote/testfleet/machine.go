// Package testfleet simulates GPU hosts for the demo, for tests and for benchmarks: simulated GPUs, genv's state
// files, and real processes that seem to use the GPUs. It needs neither a GPU nor a network other than 127.0.0.0/8.
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

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
)

// Machine is a simulated GPU host: a folder with its GPUs, a program named nvidia-smi and genv's state files, and the
// jobs that were started on it. It is safe for concurrent use once it is set up.
type Machine struct {
	Dir   string // holds all files of the machine
	State string // genv's state folder, GENV_TMPDIR; genv or Activate makes it
	GPUs  string // the file that its nvidia-smi shows, GENV_SIM_GPUS
	// Dev is its folder of device nodes, GENV_DEV_DIR. Regular files stand in for the nodes: opens of them are
	// reported by the kernel as those of nodes are, while an open of a node without its driver fails.
	Dev string

	Fault string // how its nvidia-smi fails, a gpus.Fault… text; empty for not at all. Set it before anything runs.
	// Account finds the account under which a user's jobs run, for which the
	// caller must be root. nil runs all jobs as the caller, whatever their user.
	Account func(user string) (Account, error)

	mu        sync.Mutex // over processes and the file GPUs
	processes []*Process
}

// Account is a Linux user.
type Account struct {
	UID  snapshot.UID // and the id of the group
	Home string
}

// NewMachine makes a machine with devices in a new folder, which all users may write to, like /var/tmp. nvidiaSMI is
// the path of a program that calls gpus.Main when its name is nvidia-smi: the stand-in of gpus/nvidia-smi, or the
// caller's own (os.Executable).
func NewMachine(dir string, devices []gpus.Device, nvidiaSMI string) (*Machine, error) {
	m := &Machine{Dir: dir, State: filepath.Join(dir, "genv"), GPUs: filepath.Join(dir, "gpus.json"), Dev: filepath.Join(dir, "dev")}
	if err := m.make(devices, nvidiaSMI); err != nil {
		return nil, fmt.Errorf("make a simulated host: %w", err)
	}
	return m, nil
}

func (m *Machine) make(devices []gpus.Device, nvidiaSMI string) error {
	program, err := filepath.Abs(nvidiaSMI)
	if err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(m.Bin(), 0o755), os.MkdirAll(m.Root(), 0o755)); err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(m.Dir, 0o777|os.ModeSticky), os.Symlink(program, m.NvidiaSMI())); err != nil {
		return err
	}
	return errors.Join(m.makeNodes(len(devices)), gpus.Driver{Devices: devices}.Write(m.GPUs))
}

func (m *Machine) makeNodes(n int) error {
	if err := os.Mkdir(m.Dev, 0o755); err != nil {
		return err
	}
	for i := range n {
		path := m.node(i)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666)); err != nil { //nolint:gosec // as the driver's nodes
			return err
		}
	}
	return nil
}

func (m *Machine) node(i int) string { return filepath.Join(m.Dev, fmt.Sprintf("nvidia%d", i)) }

// Bin is the folder of the machine's own programs.
func (m *Machine) Bin() string { return filepath.Join(m.Dir, "bin") }

// NvidiaSMI is the path of the machine's nvidia-smi.
func (m *Machine) NvidiaSMI() string { return filepath.Join(m.Bin(), "nvidia-smi") }

// sudo lets everybody run everything, since all users of the machine are one, and lists what a controller needs.
const sudo = `#!/bin/sh
[ "$1" != -n ] || shift
case $1 in -l*) [ $# = 1 ] || [ "$3" = usage ]; exit;; esac
exec "$@"
`

// Install makes a program the machine's genv, also for its sudo.
func (m *Machine) Install(genv string) error {
	return errors.Join(
		os.Symlink(genv, filepath.Join(m.Bin(), "genv")),
		proctest.WriteProgram(filepath.Join(m.Bin(), "sudo"), []byte(sudo)),
	)
}

// Root is where root's genv keeps its notes and copies of the state files.
func (m *Machine) Root() string { return filepath.Join(m.Dir, "root") }

// WriteProc gives the machine the driver's folder in /proc, which shows the devices of its
// nvidia-smi. Without it, genv sees a machine on which the driver shows no such folder.
func (m *Machine) WriteProc() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	driver, err := gpus.Read(m.GPUs)
	if err != nil {
		return err
	}
	return driver.WriteProc(filepath.Join(m.Root(), "proc"))
}

// ChangeDriver changes what nvidia-smi shows from now on.
func (m *Machine) ChangeDriver(change func(*gpus.Driver)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changeDriver(change)
}

func (m *Machine) changeDriver(change func(*gpus.Driver)) error {
	driver, err := gpus.Read(m.GPUs)
	if err != nil {
		return err
	}
	change(&driver)
	return driver.Write(m.GPUs)
}

// AuditLog is where genv on the machine records what it does.
func (m *Machine) AuditLog() string { return filepath.Join(m.Dir, "log", "audit.jsonl") }

// Variables are the environment variables that make genv and nvidia-smi use the machine's files.
func (m *Machine) Variables() []string {
	variables := []string{
		"GENV_TMPDIR=" + m.State,
		"GENV_AUDIT_LOG=" + m.AuditLog(),
		"GENV_ROOT_DIR=" + m.Root(),
		gpus.EnvDev + "=" + m.Dev,
		gpus.EnvFile + "=" + m.GPUs,
	}
	if m.Fault != "" {
		variables = append(variables, gpus.EnvFault+"="+m.Fault)
	}
	return variables
}

// Environ is the whole environment of genv on a machine whose jobs all belong to
// the caller: none of the caller's own variables is in it.
func (m *Machine) Environ() []string {
	return append(m.Variables(),
		"PATH="+m.Bin()+":/usr/local/bin:/usr/bin:/bin",
		"HOME="+m.Dir,
		"LC_ALL=C",
		"GENV_CONFIG_DIR=off",
		"GENV_TELL=off", // its users are the one who runs it
	)
}

// Close ends every job of the machine and waits for their ends. The folder stays.
func (m *Machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, p := range m.processes {
		errs = append(errs, p.end())
	}
	return errors.Join(errs...)
}
