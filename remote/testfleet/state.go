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
	At      time.Time              // when all this was; zero for now
}

// Env is a registered environment with a real shell in it.
type Env struct {
	snapshot.Environment
	Shell *Process // the environment ends with it
}

// Var is the variable that puts a Job in the environment.
func (e *Env) Var() string { return snapshot.ClaimVariable + "=" + string(e.EID) }

// Activate starts a shell of the user (a process that waits, for that matter),
// and writes its environment into the machine's state as genv 1.4.3 does.
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

// Attach writes into the machine's state that an environment was attached to a
// device at a moment.
func (m *Machine) Attach(env *Env, device snapshot.DeviceIndex, at time.Time) error {
	return m.locked(func() error {
		devices, err := m.Devices()
		if err != nil {
			return err
		}
		if int(device) >= len(devices) {
			return errors.New("there is no device " + device.String() + " on this machine")
		}
		d := &devices[device]
		d.Attachments = append(d.Attachments, snapshot.Attachment{
			EID: env.EID, GPUMemory: env.Config.GPUMemory, Time: snapshot.DateOf(at),
		})
		data, err := snapshot.EncodeDevices(devices)
		if err != nil {
			return err
		}
		return m.writeState("devices.json", data)
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
	return m.locked(func() error {
		envs, err := m.Environments()
		if err != nil {
			return err
		}
		data, err := snapshot.EncodeEnvironments(append(envs, env))
		if err != nil {
			return err
		}
		return m.writeState("envs.json", data)
	})
}

// locked calls change while no genv on the machine touches the state.
func (m *Machine) locked(change func() error) error {
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
	return change()
}

// writeState writes in place, as genv 1.4.3 does.
func (m *Machine) writeState(name string, data []byte) error {
	path := filepath.Join(m.State, name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		return err
	}
	return os.Chmod(path, 0o666)
}
