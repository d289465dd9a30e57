package snapshot

import (
	"errors"
	"fmt"
)

// ErrInvalid is wrapped by every decoding error of this package: the text is
// not what genv 1.4.3 writes. Nothing of it may be used.
var ErrInvalid = errors.New("not a valid genv 1.4.3 document")

// ErrOtherVersion is wrapped beside ErrInvalid when an object has keys that
// 1.4.3 does not know: the other end speaks another version.
var ErrOtherVersion = errors.New("the keys are those of another version")

// The wire types name the keys of 1.4.3 in the order in which it writes them.
// 1.4.3 decodes an object by its exact set of keys: nothing may be added.
type (
	wireSnapshot struct {
		Processes    wireProcesses    `json:"processes"`
		Environments wireEnvironments `json:"envs"`
		Devices      wireDevices      `json:"devices"`
	}
	wireProcesses struct {
		Processes []wireProcess `json:"processes"`
	}
	wireEnvironments struct {
		Environments []wireEnvironment `json:"envs"`
	}
	wireDevices struct {
		Devices []wireDevice `json:"devices"`
	}
	wireProcess struct {
		PID   PID         `json:"pid"`
		Usage []wireUsage `json:"used_gpu_memory"`
		EID   *EnvID      `json:"eid"`
	}
	wireUsage struct {
		Index  DeviceIndex `json:"index"`
		Memory *string     `json:"gpu_memory"`
	}
	wireEnvironment struct {
		EID       EnvID      `json:"eid"`
		UID       UID        `json:"uid"`
		Creation  string     `json:"creation"`
		Username  *Username  `json:"username"`
		Config    wireConfig `json:"config"`
		PIDs      []PID      `json:"pids"`
		KernelIDs []string   `json:"kernel_ids"`
	}
	wireConfig struct {
		Name      *string `json:"name"`
		GPUMemory *string `json:"gpu_memory"`
		GPUs      *int    `json:"gpus"`
	}
	wireDevice struct {
		Index       DeviceIndex      `json:"index"`
		TotalMemory string           `json:"total_memory"`
		Attachments []wireAttachment `json:"attachments"`
	}
	wireAttachment struct {
		EID       EnvID   `json:"eid"`
		GPUMemory *string `json:"gpu_memory"`
		Time      string  `json:"time"`
	}
)

// EncodeSnapshot writes a whole snapshot as `genv usage snapshot` of 1.4.3
// prints it, without the newline at the end. What the format cannot carry is
// left out: see Expressible.
func EncodeSnapshot(s *Snapshot) ([]byte, error) {
	return encode(wireSnapshot{
		Processes:    processesToWire(s.Processes),
		Environments: environmentsToWire(s.Environments),
		Devices:      devicesToWire(expressible(s.Devices)),
	})
}

// EncodeProcesses writes the part that `--type processes` prints.
func EncodeProcesses(p []Process) ([]byte, error) { return encode(processesToWire(p)) }

// EncodeEnvironments writes the part that `--type envs` prints, which is also
// the content of envs.json.
func EncodeEnvironments(e []Environment) ([]byte, error) { return encode(environmentsToWire(e)) }

// EncodeDevices writes the part that `--type devices` prints, which is also the
// content of devices.json.
func EncodeDevices(d []Device) ([]byte, error) { return encode(devicesToWire(expressible(d))) }

// DecodeSnapshot reads what `genv usage snapshot` of 1.4.3 printed. Every field
// is checked; an error wraps ErrInvalid and names the place.
func DecodeSnapshot(data []byte) (*Snapshot, error) {
	if err := checkAmount(data); err != nil {
		return nil, err
	}
	parts, err := object(data, "processes", "envs", "devices")
	if err != nil {
		return nil, err
	}
	s := &Snapshot{}
	if s.Processes, err = DecodeProcesses(parts[0]); err != nil {
		return nil, err
	}
	if s.Environments, err = DecodeEnvironments(parts[1]); err != nil {
		return nil, err
	}
	if s.Devices, err = DecodeDevices(parts[2]); err != nil {
		return nil, err
	}
	return s, nil
}

// DecodeProcesses reads what EncodeProcesses wrote.
func DecodeProcesses(data []byte) ([]Process, error) {
	items, err := list(data, "processes", maxProcesses)
	if err != nil {
		return nil, err
	}
	return decodeEach(items, "process", decodeProcess, processID)
}

// DecodeEnvironments reads what EncodeEnvironments wrote.
func DecodeEnvironments(data []byte) ([]Environment, error) {
	items, err := list(data, "envs", maxEnvironments)
	if err != nil {
		return nil, err
	}
	envs, err := decodeEach(items, "environment", decodeEnvironment, environmentID)
	if err != nil {
		return nil, err
	}
	living := 0
	for i := range envs {
		living += len(envs[i].PIDs) + len(envs[i].KernelIDs)
	}
	if living > maxPIDs { // each of them is looked up, under the lock
		return nil, fmt.Errorf("%w: %d pids and kernels are more than the %d that are read", ErrInvalid, living, maxPIDs)
	}
	return envs, nil
}

// DecodeDevices reads what EncodeDevices wrote.
func DecodeDevices(data []byte) ([]Device, error) {
	items, err := list(data, "devices", maxDevices)
	if err != nil {
		return nil, err
	}
	return decodeEach(items, "device", decodeDevice, deviceID)
}

// What an item is known by in its list.
func processID(p Process) PID           { return p.PID }
func environmentID(e Environment) EnvID { return e.EID }
func deviceID(d Device) DeviceIndex     { return d.Index }
func attachmentID(a Attachment) EnvID   { return a.EID }
func usageID(u DeviceUsage) DeviceIndex { return u.Index }
