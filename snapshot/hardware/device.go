package hardware

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/seed-3119e985/genv/snapshot"
	"github.com/seed-3119e985/genv/snapshot/nvidiasmi"
	"github.com/seed-3119e985/genv/snapshot/proc"
	"github.com/seed-3119e985/genv/snapshot/state/folder"
)

// BusDevice is a GPU of this machine, as root sees it.
type BusDevice struct {
	Index snapshot.DeviceIndex `json:"index"`
	// UUID is empty if unknown: the driver may not know it before a program uses the GPU.
	UUID      snapshot.GPUUUID    `json:"uuid,omitempty"`
	Minor     *int                `json:"minor,omitempty"`   // N of its device node, /dev/nvidiaN; nil if unknown
	Address   string              `json:"address,omitempty"` // on the PCI bus ("0000:62:00.0"); empty if unknown
	Name      string              `json:"name,omitempty"`
	Bytes     *int64              `json:"total_memory,omitempty"`   // of memory; nil without nvidia-smi
	Unified   bool                `json:"unified_memory,omitempty"` // it shares the machine's
	Instances []snapshot.Instance `json:"mig,omitempty"`            // as nvidia-smi lists them
}

// TotalMemory is in nvidia-smi's notation if it is whole MiB, or a machine's.
func (d *BusDevice) TotalMemory() (m snapshot.Memory) {
	switch {
	case d.Bytes == nil:
	case d.Unified:
		m = snapshot.MachineKiB(*d.Bytes >> 10)
	case *d.Bytes%(1<<20) == 0:
		m = snapshot.MiB(*d.Bytes >> 20)
	default:
		m, _ = snapshot.ParseMemory(fmt.Sprint(*d.Bytes)) // a number of bytes
	}
	return m
}

// Devices converts to the model, without attachments.
func Devices(list []BusDevice) []snapshot.Device {
	devices := make([]snapshot.Device, len(list))
	for i := range list {
		d := &list[i]
		devices[i] = snapshot.Device{
			Index: d.Index, UUID: d.UUID, Name: d.Name, TotalMemory: d.TotalMemory(), Unified: d.Unified,
			Instances: d.Instances,
		}
	}
	return devices
}

// Visible returns the published devices with what nvidia-smi shows of them: by UUID, since it may number from 0.
func Visible(known []BusDevice, seen []nvidiasmi.GPU) (list []nvidiasmi.GPU, hidden []snapshot.DeviceIndex) {
	for _, d := range known {
		g := nvidiasmi.GPU{Device: snapshot.Device{UUID: d.UUID, Unified: d.Unified}}
		i := slices.IndexFunc(seen, func(g nvidiasmi.GPU) bool { return g.UUID == d.UUID && d.UUID != "" })
		if i >= 0 {
			g = seen[i]
		} else {
			hidden = append(hidden, d.Index)
		}
		g.Index, g.Name = d.Index, cmp.Or(d.Name, g.Name)
		g.TotalMemory, g.Instances = cmp.Or(d.TotalMemory(), g.TotalMemory), d.Instances
		list = append(list, g)
	}
	return list, hidden
}

// Identified adds address and minor from the driver's /proc folder. It matches UUIDs, never positions: a guard that
// confused two minors would close the wrong GPU.
func Identified(found []snapshot.Device, driver []BusDevice) []BusDevice {
	list := make([]BusDevice, len(found))
	for i, d := range found {
		list[i] = BusDevice{Index: d.Index, UUID: d.UUID, Name: d.Name, Unified: d.Unified, Instances: d.Instances}
		if total := d.TotalMemory.Bytes(); d.TotalMemory.Known() {
			list[i].Bytes = &total
		}
		if known := snapshot.Find(driver, func(k *BusDevice) bool { return k.UUID == d.UUID && d.UUID != "" }); known != nil {
			list[i].Minor, list[i].Address = known.Minor, known.Address
		}
	}
	return list
}

// UUIDs returns those at indices, in that order; ok is false if one is unknown.
func UUIDs(list []BusDevice, indices []snapshot.DeviceIndex) (uuids []snapshot.GPUUUID, ok bool) {
	for _, index := range indices {
		i := slices.IndexFunc(list, func(d BusDevice) bool { return d.Index == index })
		if i < 0 || list[i].UUID == "" {
			return nil, false
		}
		uuids = append(uuids, list[i].UUID)
	}
	return uuids, true
}

// WithMissing adds GPUs that only the driver lists, and identifies those that nvidia-smi only reports as lost: in the
// driver's order, if they are as many.
func WithMissing(list []nvidiasmi.GPU, driver []BusDevice) []nvidiasmi.GPU {
	nameless := func(g *nvidiasmi.GPU) bool { return g.Failed && g.UUID == "" && g.Address == "" }
	var unnamed []*nvidiasmi.GPU
	listed := make(map[snapshot.GPUUUID]bool, len(list))
	for i := range list {
		g := &list[i]
		at := slices.IndexFunc(driver, func(d BusDevice) bool {
			return g.Address != "" && SameAddress(d.Address, g.Address)
		})
		if at >= 0 && g.UUID == "" {
			g.UUID, g.Name = driver[at].UUID, driver[at].Name
		}
		if listed[g.UUID] = true; nameless(g) {
			unnamed = append(unnamed, g)
		}
	}
	var missing []BusDevice
	for _, d := range driver {
		if !listed[d.UUID] && d.UUID != "" {
			missing = append(missing, d)
		}
	}
	if len(missing) == len(unnamed) {
		for i, g := range unnamed {
			g.UUID, g.Name = missing[i].UUID, missing[i].Name
		}
	}
	for i := len(list); i < len(driver); i++ {
		g := nvidiasmi.GPU{Device: snapshot.Device{
			Index: list[len(list)-1].Index + 1, Failed: true,
			Problem: "the driver has this GPU, and nvidia-smi doesn't list it",
		}}
		if len(unnamed) == 0 && len(missing) == len(driver)-len(list) {
			g.UUID, g.Name = missing[0].UUID, missing[0].Name
			missing = missing[1:]
		}
		list = append(list, g)
	}
	return list
}

// Lost lists the driver's GPUs if nvidia-smi lists none because one is lost: err is its error.
func Lost(driver []BusDevice, err error) []nvidiasmi.GPU {
	problem := "nvidia-smi lists no GPU, because one is lost"
	if exit := new(nvidiasmi.ExitError); errors.As(err, &exit) && exit.Text != "" {
		problem = "nvidia-smi lists no GPU, and says " + exit.Text
	}
	list := make([]nvidiasmi.GPU, len(driver))
	for i, d := range driver {
		lost := snapshot.Device{Index: d.Index, UUID: d.UUID, Name: d.Name, Failed: true, Problem: problem}
		list[i] = nvidiasmi.GPU{Device: lost}
	}
	return list
}

type guardStatus struct {
	Mode     snapshot.GuardMode `json:"mode"`
	Until    time.Time          `json:"until"`
	Reason   string             `json:"reason"`
	Problems []string           `json:"problems"`
	Veto     bool               `json:"veto"`

	Unpinned    bool               `json:"unpinned"` // the guard ends with the process Keeper
	Keeper      snapshot.PID       `json:"keeper"`
	KeeperStart snapshot.StartTime `json:"keeper_start"`
	Given       time.Time          `json:"given"` // the order's last renewal
	Order       *struct {
		Mode    snapshot.GuardMode `json:"mode"`
		LeaseMS int64              `json:"lease_ms"`
	} `json:"order"`
}

var guardNote = folder.Note[guardStatus]{Name: "guard.json", Max: 1 << 20, Invalid: ErrGarbled}

func isOn(m snapshot.GuardMode) bool { return m == snapshot.GuardWatch || m == snapshot.GuardEnforce }

func (s *guardStatus) ended(now time.Time) bool { return !s.Until.IsZero() && !now.Before(s.Until) }

// endedWithKeeper says whether a guard without pins has ended with its process.
func (s *guardStatus) endedWithKeeper(processes proc.FS) bool {
	if !s.Unpinned {
		return false
	}
	alive, err := processes.Alive(s.Keeper, s.KeeperStart)
	return err == nil && !alive
}

// Guarded says whether a guard is on. Programs then name devices by UUID, since a user's nvidia-smi and CUDA number
// only those that it lets through. An invalid file counts as a guard: UUIDs are also right without one.
func (s Catalog) Guarded(now time.Time) bool {
	if s.Run == "" {
		return false
	}
	status, err := guardNote.Read(s.Run)
	if err != nil {
		return errors.Is(err, ErrGarbled)
	}
	return isOn(status.Mode) && !status.ended(now)
}

// Guard is the state of this machine's guard; nil if unknown. Without the file, none was on since boot.
func (s Catalog) Guard(now time.Time) *snapshot.Guard {
	if s.Run == "" {
		return nil
	}
	status, err := guardNote.Read(s.Run)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &snapshot.Guard{Mode: snapshot.GuardOff}
	case err != nil || !isOn(status.Mode) && status.Mode != snapshot.GuardOff:
		return nil
	}
	g := &snapshot.Guard{Mode: status.Mode, Reason: status.Reason}
	if isOn(status.Mode) && (status.ended(now) || status.endedWithKeeper(proc.FS{Root: s.Proc})) {
		g.Mode, g.Reason = snapshot.GuardOff, "the process that kept the guard has ended"
	}
	if g.Mode == snapshot.GuardOff && status.ordered(now) {
		g.Mode = snapshot.GuardUnable
	}
	switch {
	case status.Order == nil: // off, as if there never was a guard
		g.Reason = ""
	case g.Reason != "":
		g.Reason = strings.Join(slices.Concat([]string{g.Reason}, status.Problems), "; ")
	}
	return g
}

func (s *guardStatus) ordered(now time.Time) bool {
	return s.Order != nil && !s.Veto && isOn(s.Order.Mode) &&
		now.Before(s.Given.Add(time.Duration(s.Order.LeaseMS)*time.Millisecond))
}
