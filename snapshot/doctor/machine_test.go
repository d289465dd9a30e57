package doctor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/doctor"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc/proctest"
	"github.com/seed-3119e985/genv/snapshot/state/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type smi struct{ err error }

func (s smi) Modes(context.Context) (nvidiasmi.Listing, error) {
	return nvidiasmi.Listing{GPUs: []nvidiasmi.GPU{{Persistence: new(true), Device: snapshot.Device{Driver: "550.1"}}}}, s.err
}

// here is a machine with a state folder as genv makes it, in temporary folders.
func here(t *testing.T) *doctor.Machine {
	dir := t.TempDir()
	m := &doctor.Machine{
		SMI: smi{}, StateDir: filepath.Join(dir, "genv"), RootDir: filepath.Join(dir, "root"),
		Record: filepath.Join(dir, "log", "audit.jsonl"), Proc: "/proc", SysRun: filepath.Join(dir, "run"), Owner: snapshot.UID(os.Geteuid()),
		Run:  func(context.Context, string, ...string) ([]byte, error) { return nil, errors.New("not to be run") },
		Genv: doctor.GenvProgram{Path: filepath.Join(dir, "program"), Version: "v1", Protocol: 1},
	}
	require.NoError(t, proctest.WriteProgram(m.Genv.Path, nil))
	require.NoError(t, os.Mkdir(m.RootDir, 0o755))
	store := disk.New(m.StateDir, disk.Config{RootDir: m.RootDir})
	m.Notes = store
	proctest.Try(store.RegisterDevices(t.Context(), []snapshot.Device{{TotalMemory: snapshot.MiB(100)}})).OK(t)
	return m
}

func check(t *testing.T, m *doctor.Machine, name doctor.Name) doctor.Check {
	checks, _ := m.Examine(t.Context())
	var names []doctor.Name
	var found doctor.Check
	for _, c := range checks {
		names = append(names, c.Name)
		if c.Name == name {
			found = c
		}
	}
	require.Equal(t, doctor.HostNames(), names)
	return found
}

func TestAMachineInOrder(t *testing.T) {
	m := here(t)
	checks, system := m.Examine(t.Context())
	require.Equal(t, "550.1", system.Driver)
	require.NotEmpty(t, system.Kernel)
	for _, c := range checks {
		switch c.Name {
		case doctor.Clock, doctor.Guard, doctor.Disk, doctor.PIDNamespace: // as this machine is
			require.NotEmpty(t, c.Detail)
		case doctor.Services:
			require.Equal(t, doctor.Skipped, c.Status)
		default:
			require.Equal(t, doctor.OK, c.Status, "%+v", c)
		}
	}
}

func TestStateFaults(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ail   func(m *doctor.Machine) error
		cause doctor.Cause
	}{
		{"corrupt", func(m *doctor.Machine) error {
			return os.WriteFile(filepath.Join(m.StateDir, "devices.json"), []byte("{"), 0o666)
		}, "state-corrupt"},
		{"an odd entry", func(m *doctor.Machine) error {
			return os.WriteFile(filepath.Join(m.StateDir, "envs.json"), []byte(`{"envs": [5]}`), 0o666)
		}, "state-odd"},
		{"a link", func(m *doctor.Machine) error {
			return errors.Join(os.Symlink("/etc/passwd", filepath.Join(m.StateDir, "x")),
				os.Rename(filepath.Join(m.StateDir, "x"), filepath.Join(m.StateDir, "envs.json")))
		}, "state-unsafe"},
		{"a FIFO, which is not waited for", func(m *doctor.Machine) error {
			return errors.Join(os.Remove(filepath.Join(m.StateDir, "genv.lock")),
				unix.Mkfifo(filepath.Join(m.StateDir, "genv.lock"), 0o666))
		}, "state-unsafe"},
		{"a file in its place", func(m *doctor.Machine) error {
			return errors.Join(os.RemoveAll(m.StateDir),
				os.WriteFile(m.StateDir, nil, 0o666))
		}, "state-unsafe"},
		{"lost", func(m *doctor.Machine) error { return os.Remove(filepath.Join(m.StateDir, "devices.json")) }, "state-lost"},
		{"the lock is held", func(m *doctor.Machine) error {
			file, err := os.Open(filepath.Join(m.StateDir, "genv.lock"))
			t.Cleanup(func() { _ = file.Close() })
			return errors.Join(err, unix.Flock(int(file.Fd()), unix.LOCK_EX))
		}, "state-locked"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := here(t)
			require.NoError(t, tt.ail(m))
			c := check(t, m, doctor.StateFolder)
			require.Equal(t, tt.cause, c.Cause, "%+v", c)
		})
	}
}

func TestNothingIsMade(t *testing.T) {
	m := here(t)
	require.NoError(t, os.RemoveAll(m.StateDir))
	require.NoError(t, os.RemoveAll(m.RootDir))
	require.Equal(t, doctor.OK, check(t, m, doctor.StateFolder).Status)
	require.NoDirExists(t, m.StateDir)
	require.NoDirExists(t, m.RootDir)
	require.NoDirExists(t, filepath.Dir(m.Record))
}

func TestOtherFaults(t *testing.T) {
	m := here(t)
	require.NoError(t, errors.Join(os.RemoveAll(m.StateDir), os.Symlink(m.StateDir, m.StateDir)))
	require.Contains(t, check(t, m, doctor.StateFolder).Detail, m.StateDir)
	require.Equal(t, doctor.Skipped, check(t, m, doctor.Disk).Status, "not that of the folder above")
	require.NoError(t, os.Chmod(m.Genv.Path, 0o777))
	require.EqualValues(t, "genv-writable", check(t, m, doctor.Genv).Cause)

	m.SMI = smi{nvidiasmi.ErrTimeout}
	require.EqualValues(t, "nvidia-smi-hung", check(t, m, doctor.DriverState).Cause)

	require.NoError(t, os.Mkdir(filepath.Dir(m.Record), 0o755))
	require.NoError(t, os.Chmod(filepath.Dir(m.Record), 0o777))
	require.EqualValues(t, "record-unsafe", check(t, m, doctor.Disk).Cause)

	require.NoError(t, os.MkdirAll(filepath.Join(m.SysRun, "systemd/system"), 0o755))
	require.EqualValues(t, "services-unknown", check(t, m, doctor.Services).Cause)
	m.Run = func(context.Context, string, ...string) ([]byte, error) {
		return []byte("\nFailed to connect to bus: No such file or directory\nmore\n"), errors.New("exit status 1")
	}
	require.Equal(t, "systemctl: exit status 1: Failed to connect to bus: No such file or directory", check(t, m, doctor.Services).Detail)
	m.Run = func(_ context.Context, program string, args ...string) ([]byte, error) {
		require.Equal(t, "systemctl", program)
		require.Equal(t, "show", args[0])
		return []byte("Id=genv-host.service\nLoadState=loaded\nActiveState=failed\nUnitFileState=enabled\n"), nil
	}
	require.EqualValues(t, "service-failed", check(t, m, doctor.Services).Cause)
}
