package testfleet

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
)

// Environment is what a user activates on a machine.
type Environment struct {
	User    string
	Config  snapshot.EnvConfig
	Devices []snapshot.DeviceIndex // what it is attached to
	At      time.Time              // of activation and attachments; zero for now
}

// Env is a registered environment with a real shell in it.
type Env struct {
	snapshot.Environment
	Shell *Process // the environment ends with it
}

// Var is the variable that puts a Job in the environment.
func (e *Env) Var() string { return snapshot.ClaimVariable + "=" + string(e.EID) }

// Activate starts a shell of the user (in fact a process that only waits), and
// registers its environment in the machine's state files as genv 1.4.3 does.
func (m *Machine) Activate(e Environment) (*Env, error) {
	shell, err := m.StartJob(Job{User: e.User})
	if err != nil {
		return nil, err
	}
	account, err := m.account(e.User)
	if err != nil {
		return nil, err
	}
	at := e.At
	if at.IsZero() {
		at = time.Now()
	}
	env := &Env{Shell: shell, Environment: snapshot.Environment{
		EID:      snapshot.EnvID(strconv.Itoa(int(shell.PID))),
		UID:      account.UID,
		Username: snapshot.Username(e.User),
		Creation: snapshot.DateOf(at),
		Config:   e.Config,
		PIDs:     []snapshot.PID{shell.PID},
	}}
	if err := m.register(env.Environment); err != nil {
		return nil, err
	}
	for _, device := range e.Devices {
		if err := m.Attach(env, device, at); err != nil {
			return nil, err
		}
	}
	return env, nil
}

// Attach registers in the machine's state files that an environment was attached
// to a device at a given time.
func (m *Machine) Attach(env *Env, device snapshot.DeviceIndex, at time.Time) error {
	return m.change("devices.json", func() ([]byte, error) {
		devices, err := m.Devices()
		if err != nil {
			return nil, err
		}
		if int(device) >= len(devices) {
			return nil, errors.New("there is no device " + device.String() + " on this machine")
		}
		d := &devices[device]
		d.Attachments = append(d.Attachments, snapshot.Attachment{
			EID: env.EID, GPUMemory: env.Config.GPUMemory, Time: snapshot.DateOf(at),
		})
		return snapshot.EncodeDevices(devices)
	})
}

// Devices reads the machine's devices.json; while there is none, it is what
// `genv` would make of the machine's GPUs.
func (m *Machine) Devices() ([]snapshot.Device, error) {
	data, err := os.ReadFile(filepath.Join(m.State, "devices.json"))
	if err == nil {
		return snapshot.DecodeDevices(data)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	host, err := gpus.Read(m.GPUs)
	if err != nil {
		return nil, err
	}
	devices := make([]snapshot.Device, len(host.Devices))
	for i, d := range host.Devices {
		devices[i] = snapshot.Device{Index: snapshot.DeviceIndex(d.Index), TotalMemory: snapshot.MiB(d.TotalMiB)}
	}
	return devices, nil
}

// Environments reads the machine's envs.json; none while there is no such file.
func (m *Machine) Environments() ([]snapshot.Environment, error) {
	data, err := os.ReadFile(filepath.Join(m.State, "envs.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return snapshot.DecodeEnvironments(data)
}

func (m *Machine) register(env snapshot.Environment) error {
	return m.change("envs.json", func() ([]byte, error) {
		envs, err := m.Environments()
		if err != nil {
			return nil, err
		}
		return snapshot.EncodeEnvironments(append(envs, env))
	})
}

// change changes a state file under genv's lock. It writes in place, as genv 1.4.3
// does.
func (m *Machine) change(name string, content func() ([]byte, error)) error {
	if err := os.MkdirAll(m.State, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(m.State, 0o777); err != nil { // whatever the umask
		return err
	}
	lock, err := os.OpenFile(filepath.Join(m.State, "genv.lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	defer lock.Close() // and with it the lock
	if err := lock.Chmod(0o666); err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	data, err := content()
	if err != nil {
		return err
	}
	path := filepath.Join(m.State, name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		return err
	}
	return os.Chmod(path, 0o666)
}
