package testfleet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
)

// Machine is the inside of a simulated GPU host: a folder with genv's state
// files, the simulated GPUs and a program named nvidia-smi, and the jobs that
// were started on it.
type Machine struct {
	dir string

	mu   sync.Mutex // gpus.json, jobs
	gpus gpus.Host
	jobs []*Job
}

// NewMachine makes a machine with devices in a new folder. nvidiaSMI is the
// path of a program that calls gpus.Main when its name is nvidia-smi: the
// stand-in of gpus/nvidia-smi, or the caller's own (os.Executable).
func NewMachine(dir string, devices []gpus.Device, nvidiaSMI string) (*Machine, error) {
	m := &Machine{dir: dir, gpus: gpus.Host{Devices: devices}}
	for _, folder := range []string{dir, m.Bin(), m.StateDir()} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, fmt.Errorf("make a simulated host: %w", err)
		}
	}
	if err := os.Chmod(m.StateDir(), 0o777); err != nil { // whatever the umask, as genv does it
		return nil, fmt.Errorf("make a simulated host: %w", err)
	}
	program, err := filepath.Abs(nvidiaSMI)
	if err != nil {
		return nil, fmt.Errorf("find the stand-in for nvidia-smi: %w", err)
	}
	if err := os.Symlink(program, filepath.Join(m.Bin(), "nvidia-smi")); err != nil {
		return nil, fmt.Errorf("make a simulated host: %w", err)
	}
	return m, m.gpus.Write(m.GPUs())
}

// Dir is the folder that holds all of the machine.
func (m *Machine) Dir() string { return m.dir }

// StateDir is the machine's GENV_TMPDIR.
func (m *Machine) StateDir() string { return filepath.Join(m.dir, "genv") }

// GPUs is the path of the file that its nvidia-smi reads.
func (m *Machine) GPUs() string { return filepath.Join(m.dir, "gpus.json") }

// Bin is the folder of the programs of its own, which come first on PATH.
func (m *Machine) Bin() string { return filepath.Join(m.dir, "bin") }

// Environ is the environment of programs on the machine, and all of it:
// nothing of the caller's own gets in.
func (m *Machine) Environ() []string {
	return []string{
		"PATH=" + m.Bin() + ":/usr/local/bin:/usr/bin:/bin",
		"HOME=" + m.dir,
		"LC_ALL=C",
		"GENV_TMPDIR=" + m.StateDir(),
		"GENV_AUDIT_LOG=" + m.StateDir() + ".audit/audit.jsonl",
		"GENV_ROOT_DIR=" + m.StateDir() + ".root",
		"GENV_TELL=off", // its users are whoever runs it
		gpus.EnvFile + "=" + m.GPUs(),
		"GENV_NAMES=books", // the processes are the caller's, whoever they stand for
	}
}

// Close ends every job of the machine and waits for their ends. The folder
// stays.
func (m *Machine) Close() error {
	m.mu.Lock()
	jobs := m.jobs
	m.mu.Unlock()
	var errs []error
	for _, j := range jobs {
		errs = append(errs, j.Kill())
	}
	return errors.Join(errs...)
}

// change edits the file of the GPUs.
func (m *Machine) change(edit func(*gpus.Host)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	edit(&m.gpus)
	return m.gpus.Write(m.GPUs())
}
