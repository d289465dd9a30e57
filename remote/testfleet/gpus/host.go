package gpus

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Host is what a simulated host's driver knows.
type Host struct {
	Driver  string   `json:"driver"` // empty for 550.163.01
	CUDA    string   `json:"cuda"`   // empty for 12.4
	Devices []Device `json:"devices"`
	Apps    []App    `json:"apps"`
}

// The versions of a host that names none.
const (
	defaultDriver = "550.163.01"
	defaultCUDA   = "12.4"
)

// Device is a GPU. Devices are listed in the order of their index.
type Device struct {
	Index    int    `json:"index"`
	UUID     string `json:"uuid"` // "GPU-…"
	Name     string `json:"name"`
	TotalMiB int64  `json:"total_mib"`
	MIG      []MIG  `json:"mig,omitempty"` // its instances, when it is in MIG mode
	// Broken makes every value but index, UUID and name "[Unknown Error]".
	Broken bool `json:"broken,omitempty"`
}

// MIG is a MIG instance of a device.
type MIG struct {
	Profile string `json:"profile"` // such as "1g.10gb"
	UUID    string `json:"uuid"`    // "MIG-…"
}

// App is a process's use of one device; a process on two devices is two Apps.
type App struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // /proc/PID/stat field 22; 0 for whichever process has the PID
	// Device is the index of the device; UUID names it otherwise, such as a
	// MIG instance or a device that the host does not list.
	Device  int    `json:"device"`
	UUID    string `json:"uuid,omitempty"`
	UsedMiB *int64 `json:"used_mib"` // nil when the driver would not say
	Name    string `json:"name"`
}

// Devices makes n equal devices with UUIDs that differ from those of any other
// seed text, such as the host's name.
func Devices(seed string, n int, name string, totalMiB int64) []Device {
	devices := make([]Device, n)
	for i := range devices {
		devices[i] = Device{Index: i, UUID: uuid(seed, i), Name: name, TotalMiB: totalMiB}
	}
	return devices
}

// H100s are n devices of 81559 MiB; see Devices.
func H100s(seed string, n int) []Device { return Devices(seed, n, "NVIDIA H100 80GB HBM3", 81559) }

// Read reads the file that Write wrote.
func Read(path string) (Host, error) {
	var h Host
	data, err := os.ReadFile(path)
	if err != nil {
		return h, fmt.Errorf("read the simulated GPUs: %w", err)
	}
	if err := json.Unmarshal(data, &h); err != nil {
		return h, fmt.Errorf("read the simulated GPUs of %s: %w", path, err)
	}
	return h, nil
}

// Write puts the host into a file in one step, so that no reader sees a part.
func (h Host) Write(path string) error {
	data, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the simulated GPUs: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(path), ".gpus-*")
	if err != nil {
		return fmt.Errorf("write the simulated GPUs: %w", err)
	}
	defer func() { _ = os.Remove(file.Name()) }() // nothing there after the rename
	_, err = file.Write(append(data, '\n'))
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Chmod(file.Name(), 0o644) // other users' nvidia-smi reads it
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write the simulated GPUs: %w", err)
	}
	return nil
}
