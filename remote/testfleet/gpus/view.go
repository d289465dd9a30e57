package gpus

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// view is what the driver of a host reports at a moment. Its methods are used by the templates, too.
type view struct {
	Driver
	Now time.Time
}

func newView(d Driver, now time.Time) view {
	d.Version, d.CUDA = cmp.Or(d.Version, "550.163.01"), cmp.Or(d.CUDA, "12.4")
	return view{d, now}
}

// uuidOf is the UUID under which an app is shown.
func (v view) uuidOf(a App) string {
	if a.UUID != "" {
		return a.UUID
	}
	for _, d := range v.Devices {
		if d.Index == a.Device {
			return d.UUID
		}
	}
	return "[N/A]"
}

// deviceUUID is that of an app's device: no list of processes names a MIG instance.
func (v view) deviceUUID(a App) string {
	if d, known := v.device(a); known {
		return d.UUID
	}
	return v.uuidOf(a)
}

// device is the device that an app uses, perhaps through a MIG instance.
func (v view) device(a App) (Device, bool) {
	uuid := v.uuidOf(a)
	for _, d := range v.Devices {
		if d.UUID == uuid || slices.ContainsFunc(d.MIG, func(m MIG) bool { return m.UUID == uuid }) {
			return d, true
		}
	}
	return Device{}, false
}

// On are the apps that use a device.
func (v view) On(d Device) (apps []App) {
	for _, a := range v.Apps {
		if on, ok := v.device(a); ok && on.Index == d.Index {
			apps = append(apps, a)
		}
	}
	return apps
}

// Used is how much of a device's memory is in use, in MiB.
func (v view) Used(d Device) (total int64) {
	total = d.LeakedMiB
	for _, a := range v.On(d) {
		if a.UsedMiB != nil {
			total += *a.UsedMiB
		}
	}
	return total
}

// Free is the rest of the device's memory, in MiB.
func (v view) Free(d Device) int64 { return d.TotalMiB - v.Used(d) }

// Load is the utilization in percent: that of the app that computes most.
func (v view) Load(d Device) int {
	load := 0
	for _, a := range v.On(d) {
		if a.Load == nil {
			return 97
		}
		load = max(load, *a.Load)
	}
	return load
}

func (v view) Celsius(d Device) int { return 31 + v.Load(d)/3 }
func (v view) Watt(d Device) int    { return cmp.Or(d.Watt, 70+5*v.Load(d)) }

// BusID is the PCI address of the device.
func (d Device) BusID() string { return fmt.Sprintf("00000000:%02X:00.0", d.place()) }

// address is the PCI address as lines about a lost device have it.
func (d Device) address() string { return fmt.Sprintf("0000:%02X:00.0", d.place()) }

// MIGMode is "Enabled" or "Disabled".
func (d Device) MIGMode() string { return enabled(d.MIGEnabled || len(d.MIG) > 0) }

func enabled(on bool) string {
	if on {
		return "Enabled"
	}
	return "Disabled"
}

// Instance are the ids of the GPU instance and of the compute instance that an app uses.
func (v view) Instance(a App) [2]string {
	if d, known := v.device(a); known {
		for i, m := range d.MIG {
			if m.UUID == a.UUID {
				return [2]string{fmt.Sprint(m.gi(i)), fmt.Sprint(m.CI)}
			}
		}
	}
	return [2]string{"N/A", "N/A"}
}

// Kind is the type of an app.
func (a App) Kind() string { return cmp.Or(a.Type, "C") }

// Instances are the MIG instances of a device with all their values.
func (v view) Instances(d Device) []MIG {
	list := slices.Clone(d.MIG)
	for i := range list {
		list[i].GI, list[i].TotalMiB = d.MIG[i].gi(i), d.MIG[i].total()
	}
	return list
}

// InstanceUsed is how much of the memory of a GPU instance its apps use, in MiB.
func (v view) InstanceUsed(d Device, m MIG) (total int64) {
	for _, a := range v.On(d) {
		if a.UsedMiB != nil && v.Instance(a)[0] == fmt.Sprint(m.GI) {
			total += *a.UsedMiB
		}
	}
	return total
}

// gi is the id of the GPU instance; i is the place among those of the device.
func (m MIG) gi(i int) int { return cmp.Or(m.GI, 7+i) }

// total is the memory of an H100's GPU instance, in MiB, or what m says.
func (m MIG) total() int64 {
	sizes := map[string]int64{"10gb": 9984, "20gb": 20096, "40gb": 40448, "80gb": 80896}
	_, size, _ := strings.Cut(m.Profile, "g.")
	return cmp.Or(m.TotalMiB, sizes[size])
}

// ofUnified is an amount of a device's memory as -q shows it.
func ofUnified(d Device, mib int64) string {
	if d.Unified {
		return "N/A"
	}
	return fmt.Sprint(mib) + " MiB"
}

// amount is a number of MiB with its unit, or unknown if there is none.
func amount(mib *int64, unit, unknown string) string {
	if mib == nil {
		return unknown
	}
	return fmt.Sprint(*mib) + unit
}

// units of the fields that have one.
var units = map[string]string{
	"memory.total": "MiB", "memory.used": "MiB", "memory.free": "MiB", "used_gpu_memory": "MiB", "used_memory": "MiB",
	"utilization.gpu": "%", "utilization.memory": "%", "power.draw": "W", "power.limit": "W",
}

const timestamp = "2006/01/02 15:04:05.000"

// gpuRow has a device's value for each field of --query-gpu.
func gpuRow(v view, d Device) map[string]string {
	load := v.Load(d)
	row := map[string]string{
		"persistence_mode": enabled(!d.NoPersistence), "mig.mode.current": d.MIGMode(),
		"memory.total": fmt.Sprint(d.TotalMiB), "memory.used": fmt.Sprint(v.Used(d)), "memory.free": fmt.Sprint(v.Free(d)),
		"utilization.gpu": strconv.Itoa(load), "utilization.memory": strconv.Itoa(load / 2),
		"temperature.gpu": strconv.Itoa(v.Celsius(d)), "power.draw": fmt.Sprintf("%d.12", v.Watt(d)),
		"power.limit": "700.00",
	}
	if len(d.MIG) > 0 {
		row["utilization.gpu"], row["utilization.memory"] = "[N/A]", "[N/A]"
	}
	if d.Unified {
		set(row, []string{"memory.total", "memory.used", "memory.free"}, "[N/A]")
	}
	d.spoil(row)
	maps.Copy(row, map[string]string{
		"timestamp": v.Now.Format(timestamp), "driver_version": v.Version, "count": strconv.Itoa(len(v.Devices)),
		"name": d.Name, "gpu_name": d.Name, "uuid": d.UUID, "gpu_uuid": d.UUID, "index": strconv.Itoa(d.Index),
		"pci.bus_id": d.BusID(), "gpu_bus_id": d.BusID(), "display_active": enabled(d.Display),
		"compute_mode": cmp.Or(d.ComputeMode, "Default"),
	})
	if !d.Shown() {
		set(row, slices.Collect(maps.Keys(row)), "[Unknown Error]")
	}
	return row
}

// appRow has an app's value for each field of --query-compute-apps.
func appRow(v view, a App) map[string]string {
	name, busID, used := "[N/A]", "[N/A]", amount(a.UsedMiB, "", "[N/A]")
	if d, ok := v.device(a); ok {
		name, busID = d.Name, d.BusID()
	}
	return map[string]string{
		"timestamp": v.Now.Format(timestamp), "gpu_name": name, "gpu_bus_id": busID, "gpu_uuid": v.deviceUUID(a),
		"pid": strconv.Itoa(a.PID), "process_name": a.Name, "name": a.Name, "used_gpu_memory": used, "used_memory": used,
	}
}

// csv prints the fields of all rows as nvidia-smi does: ", " between cells, no
// quotes, and the unit in the header even where nounits takes it off the cells.
func csv(fields []string, rows []row, format []string) string {
	var b strings.Builder
	if !slices.Contains(format, "noheader") {
		b.WriteString(line(fields, heading))
	}
	for _, r := range rows {
		b.WriteString(r.complaint)
		if r.cells == nil {
			continue
		}
		b.WriteString(line(fields, func(name string) string {
			if units[name] == "" || slices.Contains(format, "nounits") || strings.HasPrefix(r.cells[name], "[") {
				return r.cells[name]
			}
			return r.cells[name] + " " + units[name]
		}))
	}
	return b.String()
}

// row is a row with the line before it; without cells it is the line alone.
type row struct {
	complaint string
	cells     map[string]string
}

// gpuRows are those of all devices.
func (v view) gpuRows() (rows []row) {
	for _, d := range v.Devices {
		r := row{complaint: d.Complaint()}
		if d.Shown() || d.Fault == Lost {
			r.cells = gpuRow(v, d)
		}
		rows = append(rows, r)
	}
	return rows
}

// appRows are those of the compute list, after lines about lost devices.
func (v view) appRows() (rows []row) {
	for _, d := range v.Devices {
		rows = append(rows, row{complaint: d.Complaint()})
	}
	for _, a := range v.Apps {
		if d, known := v.device(a); a.Type != "G" && (!known || d.Shown()) {
			rows = append(rows, row{cells: appRow(v, a)})
		}
	}
	return rows
}

func line(fields []string, cell func(name string) string) string {
	cells := make([]string, len(fields))
	for i, name := range fields {
		cells[i] = cell(name)
	}
	return strings.Join(cells, ", ") + "\n"
}

// heading is the field with its unit. nvidia-smi heads used_memory by its other name.
func heading(name string) string {
	if name == "used_memory" {
		name = "used_gpu_memory"
	}
	if units[name] == "" {
		return name
	}
	return name + " [" + units[name] + "]"
}
