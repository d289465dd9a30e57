// Package gpus simulates the GPUs of a host: a JSON file that lists devices and the processes that use them, and a
// stand-in for nvidia-smi that prints that file in nvidia-smi's formats, without processes that have ended.
//
//	driver := gpus.Driver{Devices: gpus.Devices("gpu-01", 8, "NVIDIA H100 80GB HBM3", 81559)}
//	err := driver.Write("gpus.json")
//	// GENV_SIM_GPUS=gpus.json nvidia-smi --query-gpu=index,uuid --format=csv
//
// Any program can be the stand-in: it calls Main when its own name is
// nvidia-smi. The command in the folder nvidia-smi does nothing else.
package gpus

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/proc"
)

// Driver is what the driver of a simulated host knows.
type Driver struct {
	Version string   `json:"driver"` // empty for 550.163.01
	CUDA    string   `json:"cuda"`   // empty for 12.4
	Devices []Device `json:"devices"`
	Apps    []App    `json:"apps"`
	// Warnings are lines after each answer, such as one about a corrupted infoROM: the exit code is 14 then.
	Warnings []string `json:"warnings,omitempty"`
	DelayMS  int      `json:"delay_ms,omitempty"` // how long each call takes
	// Visible are the devices that a guard lets each user see, by uid and index; nil without a guard. Root sees all.
	Visible map[int][]int `json:"visible,omitzero"`
}

// Device is a GPU. Devices are listed in the order of their index.
type Device struct {
	Index    int    `json:"index"`
	UUID     string `json:"uuid"` // "GPU-…"
	Name     string `json:"name"`
	TotalMiB int64  `json:"total_mib"`
	MIG      []MIG  `json:"mig,omitempty"` // its instances, when it is in MIG mode
	Fault    Fault  `json:"fault,omitempty"`

	MIGEnabled    bool   `json:"mig_enabled,omitempty"`    // it is in MIG mode without an instance
	ComputeMode   string `json:"compute_mode,omitempty"`   // empty for "Default"
	Unified       bool   `json:"unified,omitempty"`        // it shares the machine's memory: its own is "[N/A]"
	Watt          int    `json:"watt,omitempty"`           // that it draws; 0 for what suits its load
	LeakedMiB     int64  `json:"leaked_mib,omitempty"`     // memory in use that belongs to no process
	Display       bool   `json:"display,omitempty"`        // a screen is active on it
	NoPersistence bool   `json:"no_persistence,omitempty"` // its persistence mode is off
	Bus           int    `json:"bus,omitempty"`            // its place on the PCI bus, from 1; 0 for the one after its index
	Minor         *int   `json:"minor,omitempty"`          // the number of its node; nil for its index
}

// MIG is a MIG instance of a device: a compute instance of a GPU instance.
type MIG struct {
	Profile string `json:"profile"`      // such as "1g.10gb"
	UUID    string `json:"uuid"`         // "MIG-…"
	GI      int    `json:"gi,omitempty"` // of the GPU instance, of which compute instances share the memory; 0 for one of its own
	CI      int    `json:"ci,omitempty"` // of the compute instance
	// TotalMiB is the memory of the GPU instance; 0 for that of an H100, less than the profile's name says.
	TotalMiB int64 `json:"total_mib,omitempty"`
}

// App is a process's use of one device; a process on two devices is two Apps.
type App struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // /proc/PID/stat field 22; 0 for whichever process has the PID
	// Foreign says that the PID is one of another PID namespace, or stale: the driver lists it all the same.
	Foreign bool   `json:"foreign,omitempty"`
	Type    string `json:"type,omitempty"` // "C", "G" or "C+G"; empty for C. The compute list has no type and no G
	// Device is the index of the device. UUID takes precedence: a MIG instance, of which the compute list shows the
	// device, or a device that the host does not list.
	Device  int    `json:"device"`
	UUID    string `json:"uuid,omitempty"`
	UsedMiB *int64 `json:"used_mib"`       // nil if the driver does not report it
	Load    *int   `json:"load,omitempty"` // how much it computes, in percent of the device; nil for 97
	Name    string `json:"name"`
}

// Devices makes n equal devices with UUIDs that differ from those of any other seed text, such as the host's name.
func Devices(seed string, n int, name string, totalMiB int64) []Device {
	devices := make([]Device, n)
	for i := range devices {
		h := sha256.Sum256(fmt.Appendf(nil, "%s/%d", seed, i))
		uuid := fmt.Sprintf("GPU-%x-%x-%x-%x-%x", h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
		devices[i] = Device{Index: i, UUID: uuid, Name: name, TotalMiB: totalMiB}
	}
	return devices
}

// H100s are n devices of 81559 MiB; see Devices.
func H100s(seed string, n int) []Device { return Devices(seed, n, "NVIDIA H100 80GB HBM3", 81559) }

// Read reads the file that Write wrote.
func Read(path string) (Driver, error) {
	var d Driver
	data, err := os.ReadFile(path)
	if err != nil {
		return d, fmt.Errorf("read the simulated GPUs: %w", err)
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, fmt.Errorf("read the simulated GPUs of %s: %w", path, err)
	}
	return d, nil
}

// Write writes it to a file in one step, so that no reader sees a part. Only one caller may write to a path at a time.
func (d Driver) Write(path string) error {
	data, err := json.MarshalIndent(d, "", "  ")
	next := path + ".new"
	if err == nil {
		err = os.WriteFile(next, append(data, '\n'), 0o600)
	}
	if err == nil {
		err = os.Chmod(next, 0o644) // other users' nvidia-smi reads it, whatever the umask
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("write the simulated GPUs: %w", err)
	}
	return nil
}

// Living is the driver without the apps of processes that have ended: a zombie
// uses no GPU. root is where /proc is mounted.
func (d Driver) Living(root string) Driver {
	d.Apps = slices.DeleteFunc(slices.Clone(d.Apps), func(a App) bool {
		if a.Foreign {
			return false
		}
		alive, err := proc.FS{Root: root}.Alive(snapshot.PID(a.PID), snapshot.StartTime(a.Start))
		return err != nil || !alive
	})
	return d
}

// SeenBy is the driver as nvidia-smi shows it to a user: without drained devices, and on a guarded host only the visible
// ones, numbered from 0. A guard is constructed after what NVML does in a container, where a process can't open some nodes.
func (d Driver) SeenBy(uid int) Driver {
	shown := func(device Device) bool {
		return device.Fault != Drained && (d.Visible == nil || uid == 0 || slices.Contains(d.Visible[uid], device.Index))
	}
	if !slices.ContainsFunc(d.Devices, func(device Device) bool { return !shown(device) }) {
		return d
	}
	all := view{Driver: d}
	seen := d
	seen.Devices, seen.Apps = nil, nil
	for _, device := range d.Devices {
		if !shown(device) {
			continue
		}
		for _, app := range all.On(device) {
			app.UUID = all.uuidOf(app)
			seen.Apps = append(seen.Apps, app)
		}
		device.Minor, device.Bus = new(device.MinorNumber()), device.place()
		device.Index = len(seen.Devices)
		seen.Devices = append(seen.Devices, device)
	}
	return seen
}

// place is the place on the PCI bus.
func (d Device) place() int { return cmp.Or(d.Bus, d.Index+1) }

// MinorNumber is the number of the device's node.
func (d Device) MinorNumber() int { return *cmp.Or(d.Minor, &d.Index) }

// WriteProc writes what the driver shows in /proc/driver/nvidia, below the folder proc, where genv reads it if
// GENV_ROOT_DIR has it. The layout is that of nv-procfs.c of NVIDIA's open-gpu-kernel-modules. A lost device is still
// there, a drained one isn't.
func (d Driver) WriteProc(proc string) error {
	folder := filepath.Join(proc, "driver/nvidia/gpus")
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	for _, device := range d.Devices {
		if device.Fault == Drained {
			continue
		}
		address := fmt.Sprintf("0000:%02x:00.0", device.place())
		text := fmt.Sprintf("Model: \t\t %s\nIRQ:   \t\t 10\nGPU UUID: \t %s\nBus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n",
			device.Name, device.UUID, address, device.MinorNumber())
		if err := os.MkdirAll(filepath.Join(folder, address), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, address, "information"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Fault is what is wrong with a device; empty for nothing.
type Fault string

// The faults, as drivers from 2021 to 2026 were seen to show them. Of a lost device no process is listed.
const (
	Lost        Fault = "lost"         // a line in place of its row, then one of error texts; exit code 15
	LostBetween Fault = "lost-between" // the line alone; exit code 0
	LostStderr  Fault = "lost-stderr"  // the line on stderr; exit code 0
	LostAll     Fault = "lost-all"     // an old driver: the line is the whole answer; exit code 255
	Gap         Fault = "gap"          // neither row nor line
	Drained     Fault = "drained"      // likewise, also in /proc, and the others move up by one index
	OffBus      Fault = "off-bus"      // "[GPU is lost]" as each value but index, UUID and name
	NeedsReset  Fault = "needs-reset"  // "[GPU requires reset]" as what is measured, but 0 MiB are in use
	Partial     Fault = "partial"      // "[Unknown Error]" as what is measured, except for the memory
	Broken      Fault = "broken"       // "[Unknown Error]" as each value but index, UUID and name
)

// Shown says whether nvidia-smi has a row of values for the device.
func (d Device) Shown() bool {
	return !slices.Contains([]Fault{Lost, LostBetween, LostStderr, LostAll, Gap, Drained}, d.Fault)
}

// Listed are the devices that nvidia-smi lists.
func (v view) Listed() []Device {
	return slices.DeleteFunc(slices.Clone(v.Devices), func(d Device) bool { return !d.Shown() })
}

// Complaint is the line about a device in place of its row on stdout; empty for none.
func (d Device) Complaint() string {
	switch d.Fault {
	case Lost, LostBetween:
		return fmt.Sprintf("Unable to determine the device handle for GPU%s: Unknown Error\n", d.address())
	case LostAll:
		return fmt.Sprintf("Unable to determine the device handle for GPU %s: Unknown Error\n", d.address())
	}
	return ""
}

// stderr is what an answer has on stderr.
func (v view) stderr() (text string) {
	for _, d := range v.Devices {
		if d.Fault == LostStderr {
			text += fmt.Sprintf("Unable to determine the device handle for GPU%d: %s: Unknown Error\n", d.Index, d.address())
		}
	}
	return text
}

// with is an answer with the lines after it, and its exit code.
func (v view) with(stdout string) (text string, code int) {
	has := func(f Fault) bool { return slices.ContainsFunc(v.Devices, func(d Device) bool { return d.Fault == f }) }
	switch {
	case has(LostAll):
		i := slices.IndexFunc(v.Devices, func(d Device) bool { return d.Fault == LostAll })
		return v.Devices[i].Complaint(), exitUnknown
	case has(Lost):
		code = exitLost
	case len(v.Warnings) > 0:
		code = exitInfoROM
	}
	for _, line := range v.Warnings {
		stdout += line + "\n"
	}
	return stdout, code
}

// spoil replaces values of a row by what a driver says of a device with a fault.
func (d Device) spoil(row map[string]string) {
	measured := []string{"utilization.gpu", "utilization.memory", "temperature.gpu", "power.draw", "power.limit"}
	switch d.Fault {
	case NeedsReset:
		row["memory.used"] = "0"
		set(row, measured, "[GPU requires reset]")
	case Partial:
		set(row, measured, "[Unknown Error]")
	case OffBus:
		set(row, slices.Collect(maps.Keys(row)), "[GPU is lost]")
	case Broken:
		set(row, slices.Collect(maps.Keys(row)), "[Unknown Error]")
	}
}

func set(row map[string]string, names []string, value string) {
	for _, name := range names {
		row[name] = value
	}
}
