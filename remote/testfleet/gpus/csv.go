package gpus

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// units of the fields that have one.
var units = map[string]string{
	"memory.total": "MiB", "memory.used": "MiB", "memory.free": "MiB", "used_gpu_memory": "MiB", "used_memory": "MiB",
	"utilization.gpu": "%", "utilization.memory": "%", "power.draw": "W",
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
	})
	if !d.listed() {
		set(row, keysOf(row), "[Unknown Error]")
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
		if d.listed() || d.Fault == Lost {
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
		if d, known := v.device(a); a.Type != "G" && (!known || d.listed()) {
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

// heading is the field with its unit. nvidia-smi heads used_memory by its other
// name.
func heading(name string) string {
	if name == "used_memory" {
		name = "used_gpu_memory"
	}
	if units[name] == "" {
		return name
	}
	return name + " [" + units[name] + "]"
}
