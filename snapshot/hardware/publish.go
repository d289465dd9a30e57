// Package hardware knows the GPUs of this machine as root sees them, and publishes them for all users. On a guarded
// host a user's nvidia-smi lists only the GPUs that the guard lets through, and numbers them from 0.
//
//	// root, whenever it has asked nvidia-smi
//	driver, err := hardware.FromDriver("/proc")
//	err = hardware.Publish("/run/genv", hardware.Identified(found, driver))
//	// everybody
//	devices, err := hardware.Read("/run/genv")
//	if (hardware.Catalog{Run: "/run/genv"}).Guarded(time.Now()) { … }
//
// A GPU's index is not the number of its device node. /proc/driver/nvidia/gpus/ADDRESS/information shows both: "GPU
// UUID", "Bus Location", "Device Minor" and "GPU Excluded" (NVIDIA driver README, "Using the /proc File System
// Interface"; nv-procfs.c of open-gpu-kernel-modules). Everybody may read it, guarded or not.
//
// NVML promises no order of indices. So far it is that of the PCI bus, by which FromDriver numbers GPUs. What root
// publishes has the indices of root's nvidia-smi, matched by UUID, and takes precedence.
package hardware

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// ErrNotPublished means that root's genv has not published the devices since the boot.
var ErrNotPublished = errors.New("root's list of this machine's GPUs does not exist yet: `sudo genv usage " +
	"snapshot` writes it")

const (
	devicesSchema = "genv.hardware/1"
	maxIndex      = 1023 // as in the state files
)

var devicesNote = folder.Note[published]{
	Name: "devices.json", Max: 1 << 20, Mode: 0o644, Invalid: ErrGarbled, Check: (*published).check,
}

type published struct {
	Schema  string      `json:"schema"`
	Devices []BusDevice `json:"devices"`
}

// Publish writes root's list to devices.json in dir for all users if it is new, and creates a missing dir. An error
// leaves the old list.
func Publish(dir string, list []BusDevice) error {
	if err := checkDistinct(list); err != nil {
		return err
	}
	list = append([]BusDevice{}, list...)
	if old, err := Read(dir); err == nil && same(old, list) {
		return nil
	}
	return devicesNote.Publish(dir, published{devicesSchema, list})
}

func same(a, b []BusDevice) bool {
	x, err := json.Marshal(a)
	y, otherErr := json.Marshal(b)
	return err == nil && otherErr == nil && bytes.Equal(x, y)
}

// Read returns the list in dir, if only root (or the caller, on a simulated host) can have written it. After an error
// (ErrNotPublished, ErrGarbled or folder.ErrUnsafe) the devices are unknown, not zero.
func Read(dir string) ([]BusDevice, error) {
	p, err := devicesNote.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w (%w)", ErrNotPublished, err)
	}
	return p.Devices, err
}

// Decode checks everything, since root's programs may follow it. Its error is ErrGarbled.
func Decode(data []byte) ([]BusDevice, error) {
	p, err := devicesNote.Decode(data, nil)
	return p.Devices, err
}

func (p *published) check() error {
	for i := range p.Devices {
		if !p.Devices[i].isValid() {
			return fmt.Errorf("GPU %d", i)
		}
	}
	return cmp.Or(folder.CheckSchema(p.Schema, devicesSchema), checkDistinct(p.Devices))
}

func (d *BusDevice) isValid() bool {
	_, err := parseAddress(d.Address)
	return d.Index >= 0 && d.Index <= maxIndex && (d.Minor == nil || *d.Minor >= 0 && *d.Minor < 1<<minorBits) &&
		(d.UUID == "" || knownUUID(string(d.UUID)) == d.UUID) && snapshot.CheckText("name", d.Name) == nil &&
		(d.Bytes == nil || *d.Bytes >= 0) && (d.Address == "" || err == nil) &&
		!slices.ContainsFunc(d.Instances, func(i snapshot.Instance) bool {
			return snapshot.CheckInstance(i.UUID) != nil || snapshot.CheckText("profile", i.Profile) != nil ||
				snapshot.CheckText("pool", i.Pool) != nil
		})
}

// Catalog is a process's source of this machine's GPUs. The zero Catalog restricts and publishes nothing.
type Catalog struct {
	Run       string // root's run folder; empty for none
	Proc      string // mount point of /proc; empty for /proc
	Dev       string // folder of device nodes; empty for /dev
	Root      bool   // this process is root's
	Contained bool   // this process is in a container with only some of the devices
}

// NodeMajor is the major number of the driver's device nodes.
const NodeMajor = 195

// HasNodes says whether processes on GPUs have a node of NodeMajor open or mapped. Tegra and WSL have others.
func (s Catalog) HasNodes() bool {
	dev := cmp.Or(s.Dev, "/dev")
	for _, other := range []string{"nvgpu", "nvhost-gpu", "dxg"} {
		if _, err := os.Stat(filepath.Join(dev, other)); err == nil {
			return false
		}
	}
	var st unix.Stat_t
	err := unix.Stat(filepath.Join(dev, "nvidiactl"), &st)
	return err == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(st.Rdev) == NodeMajor
}

// Restricted says whether nvidia-smi may show this process only some devices, and number them differently.
func (s Catalog) Restricted(now time.Time) bool { return s.Contained || !s.Root && s.Guarded(now) }

// Known lists devices without nvidia-smi: root's list, else the driver's /proc folder, which lacks memory. The error
// may wrap ErrNotPublished.
func (s Catalog) Known() ([]BusDevice, error) {
	if s.Run == "" {
		return FromDriver(s.Proc)
	}
	list, err := Read(s.Run)
	if err == nil {
		return list, nil
	}
	if list, driverErr := FromDriver(s.Proc); driverErr == nil {
		return list, nil
	}
	return nil, err
}

// Publish publishes the devices of root's nvidia-smi, unless the driver's /proc folder lacks them, as in a simulation.
// For other users it does nothing.
func (s Catalog) Publish(found []snapshot.Device) error {
	if !s.Root || s.Run == "" {
		return nil
	}
	driver, err := FromDriver(s.Proc)
	if err != nil {
		return err
	}
	list := Identified(found, driver)
	if !slices.ContainsFunc(list, func(d BusDevice) bool { return d.Minor != nil }) {
		return errors.New("the driver's /proc folder knows none of the GPUs that nvidia-smi lists")
	}
	return Publish(s.Run, list)
}

// ListsAll says whether so many devices can be all of the driver's; true if unknown.
func (s Catalog) ListsAll(devices int) bool {
	if Count(s.Proc) <= devices {
		return true
	}
	driver, err := FromDriver(s.Proc) // without excluded ones
	return err == nil && len(driver) <= devices
}
