package testfleet

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/remote/testfleet/gpus"
	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state"
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

// Attach registers in the machine's state files that an environment was attached to a device at a given time.
func (m *Machine) Attach(env *Env, device snapshot.DeviceIndex, at time.Time) error {
	return m.Update(func(files *state.Files) error {
		d := files.Device(device)
		if d == nil {
			return errors.New("there is no device " + device.String() + " on this machine")
		}
		d.Attachments = append(d.Attachments, snapshot.Attachment{
			EID: env.EID, GPUMemory: env.Config.GPUMemory, Time: snapshot.DateOf(at),
		})
		return nil
	})
}

// Devices reads the machine's devices.json; while there is none, it is what `genv` would make of the machine's GPUs.
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
	return m.Update(func(files *state.Files) error {
		files.Environments = append(files.Environments, env)
		return nil
	})
}

// Update changes the state files under genv's lock, as genv 1.4.3 does: it waits for the lock as long as needed, and
// writes in place what is different afterwards. A change of nothing is a look.
func (m *Machine) Update(change func(*state.Files) error) error {
	if err := os.MkdirAll(m.State, 0o777); err != nil {
		return err
	}
	_ = os.Chmod(m.State, 0o777) // whatever the umask; only its owner may
	lock, err := os.OpenFile(filepath.Join(m.State, "genv.lock"), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return err
	}
	defer lock.Close()    // and with it the lock
	_ = lock.Chmod(0o666) // likewise
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	files, err := m.files()
	if err != nil {
		return err
	}
	before, err := encode(files)
	if err != nil {
		return err
	}
	if err := change(&files); err != nil {
		return err
	}
	after, err := encode(files)
	if err != nil {
		return err
	}
	return errors.Join(m.write("envs.json", before[0], after[0]), m.write("devices.json", before[1], after[1]))
}

func (m *Machine) files() (files state.Files, err error) {
	if files.Environments, err = m.Environments(); err == nil {
		files.Devices, err = m.Devices()
	}
	return files, err
}

// encode is the content of envs.json and devices.json.
func encode(files state.Files) (contents [2][]byte, err error) {
	if contents[0], err = snapshot.EncodeEnvironments(files.Environments); err == nil {
		contents[1], err = snapshot.EncodeDevices(files.Devices)
	}
	return contents, err
}

// write writes a state file that has changed.
func (m *Machine) write(name string, before, after []byte) error {
	if bytes.Equal(before, after) {
		return nil
	}
	path := filepath.Join(m.State, name)
	if err := os.WriteFile(path, after, 0o666); err != nil {
		return err
	}
	_ = os.Chmod(path, 0o666) // whatever the umask; only its owner may
	return nil
}
